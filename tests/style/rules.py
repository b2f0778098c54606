"""The style rules: each takes a source file and yields findings. check.py runs them, self_test.py proves each can fail."""

import dataclasses
import re

MAX_FILE_LINES = 800
WARN_FILE_LINES = 400
MAX_FUNCTION_LINES = 70

# Which quoted includes (first path component) the files of a layer may use. Folders not named here (tests) may use all.
LAYERS = {
    "base": {"base"},
    "blockio": {"base", "blockio", "elidefs"},
    "core": {"base", "blockio", "core", "elidefs"},
    "include": {"elidefs"},
    "fuse": {"base", "elidefs", "fuse"},
    "examples": {"elidefs"},
}
PROJECT_ROOTS = {"base", "blockio", "core", "elidefs", "fuse", "tests"}
THIRD_PARTY_ROOTS = {"absl", "gtest", "gmock"}
TESTS_ONLY_ROOTS = {"gtest", "gmock"}

# Written in pieces, so that this file does not break its own rule.
UNFINISHED = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]) + r")\b")
DISABLED = re.compile(r"\b(DISABLED" + r"_\w*)")
SKIPPED = re.compile(r"\b(GTEST" + r"_SKIP)\b")
# History belongs to the commit message: a comment says how things are and why.
NARRATION_WORDS = [
    "previously", "no longer", "formerly", "used to be", "we now", "now uses", "refactored", "as requested",
    "has been (?:changed|moved|renamed|replaced|removed)", "was (?:renamed|refactored|rewritten)",
    "in the old (?:code|version)", "old implementation", "new implementation"]
# A phrase may be broken over two comment lines.
NARRATION = re.compile(r"\b(" + "|".join(NARRATION_WORDS).replace(" ", r"\s+") + r")\b", re.IGNORECASE)
RAW_LOCKS = re.compile(r"\b(std::(?:recursive_|shared_|timed_)?mutex|std::condition_variable(?:_any)?|std::lock_guard|"
                       r"std::scoped_lock|std::unique_lock|absl::Mutex|absl::MutexLock|absl::CondVar)\b")


@dataclasses.dataclass(frozen=True)
class Finding:
    path: str
    line: int
    rule: str
    message: str
    fatal: bool = True

    def __str__(self):
        kind = "error" if self.fatal else "warning"
        return f"{self.path}:{self.line}: {kind}: [{self.rule}] {self.message}"


class SourceFile:
    """One C++ file. `path` is relative to the source tree and uses forward slashes."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = text.split("\n")
        self.layer = path.split("/")[0]
        self.is_header = path.endswith(".h")
        self.code, self.comments = split_comments(text)

    def line_of(self, offset):
        return self.text.count("\n", 0, offset) + 1


TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^\s()\\]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL)


def split_comments(text):
    """Returns (code, comments): copies of `text` of equal length, one with comments and literals blanked, one with all else."""
    code, comments = [], []
    position = 0
    blank = lambda part: re.sub(r"[^\n]", " ", part)
    for token in TOKEN.finditer(text):
        between, value = text[position:token.start()], token.group()
        code.append(between)
        comments.append(blank(between))
        if value.startswith(("//", "/*")):
            code.append(blank(value))
            comments.append(value)
        else:
            code.append(value[0] + blank(value[1:-1]) + value[-1])
            comments.append(blank(value))
        position = token.end()
    code.append(text[position:])
    comments.append(blank(text[position:]))
    return "".join(code), "".join(comments)


INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)


def check_layering(file):
    for match in INCLUDE.finditer(file.text):
        bracket, target = match.groups()
        line = file.line_of(match.start())
        root = target.split("/")[0] if "/" in target else ""
        name = target.split("/")[-1]
        if name == "liburing.h" or target.startswith("liburing/") or target == "linux/io_uring.h":
            if file.layer in LAYERS and not file.path.startswith("blockio/device/"):
                yield Finding(file.path, line, "layering", f"{target} may be included in blockio/device/ only")
            continue
        if root in ("fuse3",) or re.match(r"^(linux/)?(fuse|cuse)[a-z_]*\.h$", target):
            if file.layer in LAYERS and file.layer != "fuse":
                yield Finding(file.path, line, "layering", f"{target} may be included in fuse/ only")
            continue
        if bracket == "<" and root not in PROJECT_ROOTS | {"absl"}:
            continue
        allowed = LAYERS.get(file.layer)
        if root not in PROJECT_ROOTS | THIRD_PARTY_ROOTS:
            yield Finding(file.path, line, "layering", f'"{target}": write the path from the root of the tree')
        elif allowed is not None and root in PROJECT_ROOTS and root not in allowed:
            yield Finding(file.path, line, "layering", f"{file.layer}/ must not include {target}")
        elif allowed is not None and root in TESTS_ONLY_ROOTS:
            yield Finding(file.path, line, "layering", f"{target} belongs in tests only")


def check_header_form(file):
    if not file.is_header:
        return
    if not file.lines[0].startswith("//"):
        yield Finding(file.path, 1, "header-comment", "the first line must be a comment that says what the header is for")
    if not re.search(r"^#pragma once$", file.text, re.MULTILINE):
        yield Finding(file.path, 1, "pragma-once", "missing #pragma once")


def check_file_length(file):
    count = len(file.lines) - 1
    if count > MAX_FILE_LINES:
        yield Finding(file.path, count, "file-length", f"{count} lines, at most {MAX_FILE_LINES}")
    elif count > WARN_FILE_LINES:
        yield Finding(file.path, count, "file-length", f"{count} lines: is this two files?", fatal=False)


def functions(file):
    """Yields (first line, last line) of every outermost function body, found by counting braces."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), file.code, flags=re.MULTILINE)
    stack = []  # per open brace: the offset where the function's declaration starts, or None
    inside = 0
    declaration = 0
    parentheses = 0
    for match in re.finditer(r"[{}();]", code):
        offset, symbol = match.start(), match.group()
        if symbol == "(":
            parentheses += 1
        elif symbol == ")":
            parentheses -= 1
        elif symbol == "{":
            before = code[declaration:offset]
            # clang-format puts a space before the brace of a body, none before a braced initializer.
            initializer = offset > 0 and not code[offset - 1].isspace()
            is_function = (not inside and not initializer and parentheses == 0 and "(" in before and
                           not re.match(r"\s*(namespace|class|struct|enum|union|extern)\b[^(]*$", before) and
                           not re.search(r"=\s*$", before))
            stack.append((declaration + len(before) - len(before.lstrip()) if is_function else None, initializer))
            inside += is_function
            if not initializer and parentheses == 0:
                declaration = offset + 1
        elif symbol == "}" and stack:
            start, initializer = stack.pop()
            if start is not None:
                inside -= 1
                yield file.line_of(start), file.line_of(offset)
            if not initializer and parentheses == 0:
                declaration = offset + 1
        elif symbol == ";" and parentheses == 0:
            declaration = offset + 1


def check_function_length(file):
    for first, last in functions(file):
        if last - first + 1 > MAX_FUNCTION_LINES:
            yield Finding(file.path, first, "function-length", f"{last - first + 1} lines, at most {MAX_FUNCTION_LINES}")


def check_text(file):
    yield from check_plain_text(file.path, file.text)
    for number, line in enumerate(file.lines, 1):
        if "\t" in line:
            yield Finding(file.path, number, "tab", "tab character")


def check_plain_text(path, text):
    """The rules for every text file, scripts included."""
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if UNFINISHED.search(line):
            yield Finding(path, number, "unfinished", "unfinished work: finish it, or write a note in docs/decisions")
        if line != line.rstrip():
            yield Finding(path, number, "trailing-blank", "trailing blank")
    if text and not text.endswith("\n"):
        yield Finding(path, len(lines), "final-newline", "no newline at the end of the file")


def check_narration(file):
    for match in NARRATION.finditer(re.sub(r"\n[ \t]*//", lambda m: "\n" + " " * (len(m.group()) - 1), file.comments)):
        yield Finding(file.path, file.line_of(match.start()), "narration",
                      f'"{" ".join(match.group().split())}": a comment describes the code as it is; history belongs to the commit message')


def check_disabled_tests(file, allowed_skips):
    """`allowed_skips` maps a path to the reason why a test there may skip itself."""
    if file.layer != "tests":
        return
    for match in DISABLED.finditer(file.code):
        yield Finding(file.path, file.line_of(match.start()), "disabled-test", f"{match.group()}: fix the test or delete it")
    if file.path not in allowed_skips:
        for match in SKIPPED.finditer(file.code):
            yield Finding(file.path, file.line_of(match.start()), "skipped-test",
                          "a test that skips itself needs a line with the reason in tests/style/allowed_skips.txt")


def parse_allowed_skips(text):
    """Lines `path: reason`; blank lines and # comments are ignored. A line without a reason is an error."""
    allowed = {}
    for line in text.split("\n"):
        if not line.strip() or line.startswith("#"):
            continue
        path, separator, reason = line.partition(":")
        if not separator or len(reason.split()) < 3:
            raise ValueError(f"allowed_skips.txt: no reason in {line!r}")
        allowed[path.strip()] = reason.strip()
    return allowed


def check_locks(file):
    if file.layer in LAYERS and file.path not in ("base/mutex.h", "base/mutex.cc"):
        for match in RAW_LOCKS.finditer(file.code):
            yield Finding(file.path, file.line_of(match.start()), "lock",
                          f"{match.group()}: use base/mutex.h, which carries the thread-safety annotations")


FIXED_FIELD = re.compile(r"^\s*(?:[LB]e(?:16|32|64)|uint8_t)\s+\w+", re.MULTILINE)


def check_ondisk_structs(file):
    if not (file.path.startswith("core/ondisk/") and file.is_header):
        return
    for match in re.finditer(r"^struct (\w+)[^;{]*\{(.*?)^\};", file.code, re.MULTILINE | re.DOTALL):
        name, body = match.groups()
        if not re.search(r"\b[LB]e(?:16|32|64)\b", body):
            continue  # a helper in memory: no fixed-endian field
        line = file.line_of(match.start())
        if not re.search(rf"\bsizeof\({name}\)", file.code[match.end():]):
            yield Finding(file.path, line, "ondisk", f"{name}: no static_assert of its size")
        if len(FIXED_FIELD.findall(body)) > 2 and not re.search(rf"\boffsetof\({name},", file.code[match.end():]):
            yield Finding(file.path, line, "ondisk", f"{name}: no static_assert of an offset")


def check_file(file, allowed_skips):
    yield from check_layering(file)
    yield from check_header_form(file)
    yield from check_file_length(file)
    yield from check_function_length(file)
    yield from check_text(file)
    yield from check_narration(file)
    yield from check_disabled_tests(file, allowed_skips)
    yield from check_locks(file)
    yield from check_ondisk_structs(file)
