"""Checks the source tree against rules.py and compiles every header alone.

usage: check.py --source DIR [--compiler CLANG++ [-- FLAG...]]
Without --compiler the headers are not compiled. Exit status 1 if anything fatal was found.
"""

import argparse
import concurrent.futures
import pathlib
import subprocess
import sys

import rules

CXX_FOLDERS = ["base", "blockio", "core", "include", "fuse", "examples", "tests"]
TEXT_FOLDERS = ["cmake", "scripts", ".ci", "docs"]
TEXT_SUFFIXES = {".py", ".sh", ".cmake", ".in", ".md", ".txt", ".json", ""}
COMPILE_JOBS = 2


def files_below(source, folders, suffixes):
    for folder in folders:
        for path in sorted((source / folder).rglob("*")):
            if path.suffix in suffixes and path.is_file():
                yield path


def check_tree(source):
    """All findings of the text rules, in path order."""
    findings = []
    skips = source / "tests/style/allowed_skips.txt"
    allowed_skips = rules.parse_allowed_skips(skips.read_text() if skips.exists() else "")
    for path in files_below(source, CXX_FOLDERS, {".h", ".cc"}):
        file = rules.SourceFile(path.relative_to(source).as_posix(), path.read_text())
        findings.extend(rules.check_file(file, allowed_skips))
    plain = list(files_below(source, TEXT_FOLDERS, TEXT_SUFFIXES))
    plain += files_below(source, ["tests"], TEXT_SUFFIXES - {""})
    plain += [path for path in sorted(source.glob("*")) if path.suffix in {".md", ".txt", ".json"}]
    for path in plain:
        findings.extend(rules.check_plain_text(path.relative_to(source).as_posix(), path.read_text()))
    for path, reason in allowed_skips.items():
        if not (source / path).exists():
            findings.append(rules.Finding("tests/style/allowed_skips.txt", 1, "skipped-test", f"{path} does not exist ({reason})"))
    return findings


def compile_header(source, header, compiler, flags):
    """None, or a finding with the compiler's output."""
    command = [compiler, *flags, "-Wno-pragma-once-outside-header", "-Wno-unused-function", f"-I{source}",
               f"-I{source / 'include'}", "-x", "c++", "-fsyntax-only", str(header)]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return None
    return rules.Finding(header.relative_to(source).as_posix(), 1, "header-alone",
                         "does not compile alone:\n" + result.stderr.strip())


def check_headers(source, compiler, flags):
    headers = list(files_below(source, CXX_FOLDERS, {".h"}))
    with concurrent.futures.ThreadPoolExecutor(COMPILE_JOBS) as pool:
        results = pool.map(lambda header: compile_header(source, header, compiler, flags), headers)
        return [finding for finding in results if finding is not None]


def main():
    arguments, flags = sys.argv[1:], []
    if "--" in arguments:
        split = arguments.index("--")
        arguments, flags = arguments[:split], arguments[split + 1:]
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=pathlib.Path, required=True)
    parser.add_argument("--compiler")
    options = parser.parse_args(arguments)
    source = options.source.resolve()

    findings = check_tree(source)
    if options.compiler:
        findings += check_headers(source, options.compiler, flags)
    for finding in findings:
        print(finding)
    fatal = sum(finding.fatal for finding in findings)
    print(f"style: {fatal} errors, {len(findings) - fatal} warnings")
    return 1 if fatal else 0


if __name__ == "__main__":
    sys.exit(main())
