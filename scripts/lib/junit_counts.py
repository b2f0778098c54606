"""Prints `PASSED FAILED` of a JUnit file that ctest wrote. usage: junit_counts.py FILE

ctest marks a case as run, fail, notrun (skipped, or its program is missing) or disabled.
A case that skipped itself counts as neither; a case that could not run counts as failed.
"""

import sys
import xml.etree.ElementTree


def counts(root):
    passed = failed = 0
    for case in root.iter("testcase"):
        status = case.get("status")
        skipped = case.find("skipped")
        if status == "run":
            passed += 1
        elif status == "fail" or skipped is None or not skipped.get("message", "").startswith("SKIP_"):
            failed += 1
    return passed, failed


if __name__ == "__main__":
    print(*counts(xml.etree.ElementTree.parse(sys.argv[1]).getroot()))
