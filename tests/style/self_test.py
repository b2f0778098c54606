"""Proves that each style rule can fail, and that it does not fail where it must not.

usage: self_test.py --compiler CLANG++
Each case is a crafted file in a temporary source tree, checked by the functions that check the real one.
"""

import argparse
import pathlib
import sys
import tempfile
import unittest

import check
import rules

HEADER = "// What it is for.\n#pragma once\n"
COMPILER = "clang++"
LONG_BODY = "  Step();\n" * 70


class StyleRules(unittest.TestCase):
    def findings(self, path, text, skips=None):
        """The rule names that fire on a tree holding just this file."""
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder)
            target = source / path
            target.parent.mkdir(parents=True)
            target.write_text(text)
            if skips is not None:
                (source / "tests/style").mkdir(parents=True, exist_ok=True)
                (source / "tests/style/allowed_skips.txt").write_text(skips)
            return sorted({finding.rule for finding in check.check_tree(source) if finding.fatal})

    def test_clean_files_pass(self):
        self.assertEqual(self.findings("base/a.h", HEADER + "int A();\n"), [])
        self.assertEqual(self.findings("base/a.cc", '#include "base/a.h"\n\n#include <vector>\n\nint A() { return 1; }\n'), [])

    def test_layering(self):
        forbidden = {
            "base": ["blockio/bio.h", "core/volume.h", "elidefs/volume.h", "fuse/session.h"],
            "blockio": ["core/volume.h", "fuse/session.h"],
            "core": ["fuse/session.h"],
            "fuse": ["core/volume.h", "blockio/bio.h"],
            "include/elidefs": ["base/error.h", "blockio/bio.h", "core/volume.h", "fuse/session.h"],
            "examples": ["base/error.h", "core/volume.h"],
        }
        allowed = {
            "base": ["base/error.h", "absl/status/status.h"],
            "blockio": ["base/error.h", "blockio/bio.h", "elidefs/block_device.h"],
            "core": ["base/error.h", "blockio/bio.h", "core/volume.h", "elidefs/volume.h"],
            "fuse": ["base/error.h", "elidefs/volume.h", "fuse/session.h"],
            "include/elidefs": ["elidefs/options.h", "absl/status/status.h"],
            "examples": ["elidefs/volume.h"],
            "tests/unit/core": ["core/volume.h", "blockio/bio.h", "fuse/session.h", "gtest/gtest.h"],
        }
        for folder, targets in forbidden.items():
            for target in targets:
                with self.subTest(folder=folder, target=target):
                    self.assertEqual(self.findings(f"{folder}/a.cc", f'#include "{target}"\n'), ["layering"])
                    self.assertEqual(self.findings(f"{folder}/a.cc", f"#  include <{target}>\n"), ["layering"])
        for folder, targets in allowed.items():
            for target in targets:
                with self.subTest(folder=folder, target=target):
                    self.assertEqual(self.findings(f"{folder}/a.cc", f'#include "{target}"\n'), [])

    def test_relative_and_test_only_includes(self):
        self.assertEqual(self.findings("core/a.cc", '#include "volume.h"\n'), ["layering"])
        self.assertEqual(self.findings("core/a.cc", '#include "../base/error.h"\n'), ["layering"])
        self.assertEqual(self.findings("core/a.cc", '#include "gtest/gtest.h"\n'), ["layering"])
        self.assertEqual(self.findings("core/a.cc", '#include "tests/unit/helper.h"\n'), ["layering"])

    def test_liburing_in_one_folder(self):
        for include in ["<liburing.h>", "<linux/io_uring.h>", '"liburing.h"']:
            for path in ["blockio/request_queue.cc", "core/a.cc", "fuse/a.cc", "base/a.cc"]:
                self.assertEqual(self.findings(path, f"#include {include}\n"), ["layering"], path)
            self.assertEqual(self.findings("blockio/device/uring.cc", f"#include {include}\n"), [])

    def test_fuse_headers_in_one_folder(self):
        for include in ["<fuse3/fuse_lowlevel.h>", "<fuse_lowlevel.h>", "<fuse.h>", "<linux/fuse.h>"]:
            for path in ["core/a.cc", "include/elidefs/a.cc", "blockio/device/a.cc"]:
                self.assertEqual(self.findings(path, f"#include {include}\n"), ["layering"], path)
            self.assertEqual(self.findings("fuse/a.cc", f"#include {include}\n"), [])

    def test_header_form(self):
        self.assertEqual(self.findings("base/a.h", "#pragma once\nint A();\n"), ["header-comment"])
        self.assertEqual(self.findings("base/a.h", "// What it is for.\nint A();\n"), ["pragma-once"])
        self.assertEqual(self.findings("base/a.h", "// It says\n// #pragma once\nint A();\n"), ["pragma-once"])

    def test_file_length(self):
        self.assertEqual(self.findings("base/a.cc", "int a;\n" * 800), [])
        self.assertEqual(self.findings("base/a.cc", "int a;\n" * 801), ["file-length"])
        warnings = list(rules.check_file_length(rules.SourceFile("base/a.cc", "int a;\n" * 401)))
        self.assertEqual([finding.fatal for finding in warnings], [False])

    def test_function_length(self):
        too_long = {
            "free function": "void A() {\n" + LONG_BODY + "}\n",
            "method in a class": "class A {\n  void B() const override {\n" + LONG_BODY + "  }\n};\n",
            "constructor with braced initializers": "A::A(int b)\n    : b_{b},\n      c_(b) {\n" + LONG_BODY + "}\n",
            "test": "TEST(A, B) {\n" + LONG_BODY + "}\n",
            "in a namespace": "namespace a {\nvoid B(std::function<void()> c) {\n" + LONG_BODY + "}\n}\n",
            "blocks and lambdas inside": "void A() {\n  if (b()) {\n    c([] {\n      d();\n    });\n  }\n" + LONG_BODY + "}\n",
            "unbalanced brace in a literal": "void A() {\n  Print(\"}\");\n  Print('}');  // }\n" + LONG_BODY + "}\n",
            "trailing return type": "auto A() -> int {\n" + LONG_BODY + "}\n",
        }
        for name, text in too_long.items():
            with self.subTest(name):
                self.assertEqual(self.findings("base/a.cc", text), ["function-length"])
        just_fits = "void A() {\n" + "  Step();\n" * 68 + "}\n"
        self.assertEqual(self.findings("base/a.cc", just_fits * 3), [])
        self.assertEqual(self.findings("base/a.cc", "struct A {\n" + "  int b();\n" * 100 + "};\n"), [])
        self.assertEqual(self.findings("base/a.cc", "const int a[] = {\n" + "  1,\n" * 100 + "};\n"), [])

    def test_unfinished_work(self):
        for word in ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"]:
            self.assertEqual(self.findings("base/a.cc", f"// {word}: later\n"), ["unfinished"])
            self.assertEqual(self.findings("scripts/a", f"# {word}\n"), ["unfinished"])
        self.assertEqual(self.findings("scripts/a", "mktemp -d name.XX" + "XXXX\n"), [])

    def test_blanks(self):
        self.assertEqual(self.findings("base/a.cc", "int a; \n"), ["trailing-blank"])
        self.assertEqual(self.findings("base/a.cc", "\tint a;\n"), ["tab"])
        self.assertEqual(self.findings("base/a.cc", "int a;"), ["final-newline"])
        self.assertEqual(self.findings("cmake/a.cmake", "set(a b) \n"), ["trailing-blank"])

    def test_narration(self):
        for text in ["// Previously this was a list.", "/* It is no\n longer a list. */", "int a;  // formerly b",
                     "// It has been renamed.", "// It is no\n// longer needed."]:
            with self.subTest(text):
                self.assertEqual(self.findings("base/a.cc", text + "\n"), ["narration"])
        self.assertEqual(self.findings("base/a.cc", 'Print("no longer mounted");\n'), [])

    def test_disabled_and_skipping_tests(self):
        disabled = "TEST(A, DISABLED" + "_B) {}\n"
        skipping = "TEST(A, B) { GTEST" + "_SKIP() << 1; }\n"
        self.assertEqual(self.findings("tests/unit/a.cc", disabled), ["disabled-test"])
        self.assertEqual(self.findings("tests/unit/a.cc", skipping), ["skipped-test"])
        self.assertEqual(self.findings("tests/unit/a.cc", skipping, "tests/unit/a.cc: needs an NVMe device\n"), [])
        self.assertEqual(self.findings("tests/unit/a.cc", skipping, "tests/unit/b.cc: needs an NVMe device\n"),
                         ["skipped-test"])
        with self.assertRaises(ValueError):
            rules.parse_allowed_skips("tests/unit/a.cc:\n")

    def test_locks(self):
        for name in ["std::mutex a;", "std::unique_lock<A> b(c);", "absl::Mutex a;", "std::condition_variable a;"]:
            self.assertEqual(self.findings("core/a.cc", name + "\n"), ["lock"])
        self.assertEqual(self.findings("core/a.cc", "// std::mutex is not used.\nMutex a;\n"), [])
        self.assertEqual(self.findings("base/mutex.h", HEADER + "std::mutex a;\n"), [])

    def test_ondisk_structs(self):
        struct = "struct A {\n  Le32 b;\n  Le32 c;\n  Le16 d[2];\n};\n"
        size, offset = "static_assert(sizeof(A) == 12);\n", "static_assert(offsetof(A, c) == 4);\n"
        path = "core/ondisk/a.h"
        self.assertEqual(self.findings(path, HEADER + struct), ["ondisk"])
        self.assertEqual(self.findings(path, HEADER + struct + size), ["ondisk"])
        self.assertEqual(self.findings(path, HEADER + struct + offset), ["ondisk"])
        self.assertEqual(self.findings(path, HEADER + struct + "// " + size + offset), ["ondisk"])
        self.assertEqual(self.findings(path, HEADER + struct + size + offset), [])
        self.assertEqual(self.findings(path, HEADER + "struct A {\n  int b;\n};\n"), [])
        self.assertEqual(self.findings("core/a.h", HEADER + struct), [])

    def test_headers_alone(self):
        cases = {
            "missing include": (HEADER + "std::string A();\n", True),
            "complete": (HEADER + "#include <string>\nstd::string A();\n", False),
            "missing declaration": (HEADER + "struct A { B b; };\n", True),
        }
        for name, (text, fails) in cases.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                source = pathlib.Path(folder)
                (source / "base").mkdir()
                (source / "base/a.h").write_text(text)
                found = check.check_headers(source, COMPILER, ["-std=c++20", "-Wall", "-Werror"])
                self.assertEqual([finding.rule for finding in found], ["header-alone"] if fails else [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", default=COMPILER)
    options, rest = parser.parse_known_args()
    COMPILER = options.compiler
    unittest.main(argv=[sys.argv[0], *rest])
