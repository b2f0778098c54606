"""Reads a JUnit file that ctest wrote. usage: junit.py counts|failures|planted FILE

counts: `PASSED FAILED`. ctest marks a case as run, fail, notrun (skipped, or its program is missing) or disabled.
A case that skipped itself counts as neither; a case that could not run counts as failed.
failures: for each failed case its name and the part of its output that tells most, kept short so that the end of a long
run still shows every failure.
planted: a row for each planted bug: whether its case found it, and in how many seconds.
"""

import re
import sys
import xml.etree.ElementTree

FAILURE_LINES = 24
TELLING = re.compile(r"Failure$|^WARNING: ThreadSanitizer|^=+\d+=+ERROR|runtime error:|^Traceback|^FAIL|Assertion|^\S+: error")


def passed(case):
    return case.get("status") == "run"


def failed(case):
    if passed(case):
        return False
    skipped = case.find("skipped")
    return case.get("status") == "fail" or skipped is None or not skipped.get("message", "").startswith("SKIP_")


def telling_part(output):
    lines = output.splitlines()
    first = next((i for i, line in enumerate(lines) if TELLING.search(line)), None)
    return lines[-FAILURE_LINES:] if first is None else lines[first : first + FAILURE_LINES]


def print_failures(cases):
    for case in cases:
        if failed(case):
            print(f"--- {case.get('name')}")
            for line in telling_part(case.findtext("system-out", default="")):
                print(f"    {line[:240]}")


def print_planted(cases):
    for case in cases:
        program, marker, bug = case.get("name").partition(".planted.")
        if marker:
            result = "caught" if passed(case) else "NOT CAUGHT" if failed(case) else "skipped"
            print(f"{bug:44} {program:16} {result:10} {float(case.get('time', 0)):6.1f} s")


if __name__ == "__main__":
    every_case = list(xml.etree.ElementTree.parse(sys.argv[2]).getroot().iter("testcase"))
    if sys.argv[1] == "counts":
        print(sum(map(passed, every_case)), sum(map(failed, every_case)))
    elif sys.argv[1] == "planted":
        print_planted(every_case)
    else:
        print_failures(every_case)
