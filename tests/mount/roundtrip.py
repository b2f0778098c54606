"""What one side writes the other reads: elidefs and the kernel's ext4, for every block size, with e2fsck as the judge."""

import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import harness
import load

SMALL_FILES = 100000 if harness.LONG else 5000
SIZE_MIB = 2048 if harness.LONG else 512


def kernel_to_elidefs(rig, block_bytes):
    image = rig.image(SIZE_MIB, "-b", block_bytes, "-N", SMALL_FILES + 2000)
    with rig.kernel_mounted(image) as point:
        load.fill(point, SMALL_FILES, 20)
        expected = harness.tree(point)
    with rig.mounted(image, "ro") as mount:
        found = harness.tree(mount.point)
    rig.check(not harness.differences(expected, found),
              f"{block_bytes}: filled by the kernel, read by elidefs:\n" + harness.differences(expected, found))
    rig.check_clean(image, f"{block_bytes}: after a read-only mount")
    with rig.mounted(image) as mount:
        found = harness.tree(mount.point)
    rig.check(not harness.differences(expected, found),
              f"{block_bytes}: read by elidefs, mounted read-write:\n" + harness.differences(expected, found))
    rig.check_clean(image, f"{block_bytes}: after a read-write mount")
    os.unlink(image)


def elidefs_to_kernel(rig, block_bytes):
    small_files = SMALL_FILES // 5
    image = rig.image(512, "-b", block_bytes, "-N", small_files + 2000)
    with rig.mounted(image) as mount:
        load.fill(mount.point, small_files, 20)
        before = harness.tree(mount.point)
        load.churn(mount.point)
        after = harness.tree(mount.point)
    rig.check_clean(image, f"{block_bytes}: after elidefs wrote it")
    with rig.kernel_mounted(image, "ro") as point:
        found = harness.tree(point)
    rig.check(not harness.differences(after, found),
              f"{block_bytes}: written by elidefs, read by the kernel:\n" + harness.differences(after, found))
    # The same work done by the kernel leaves the same names and contents (times and inode numbers aside).
    reference = rig.image(512, "-b", block_bytes, "-N", small_files + 2000)
    with rig.kernel_mounted(reference) as point:
        load.fill(point, small_files, 20)
        compare(rig, harness.tree(point), before, f"{block_bytes}: the same fill by both")
        load.churn(point)
        compare(rig, harness.tree(point), after, f"{block_bytes}: the same churn by both")
    # And back: the kernel goes on with what elidefs left, and elidefs reads it.
    with rig.kernel_mounted(image) as point:
        for number in range(200):
            load.write_file(os.path.join(point, "files", f"late{number}"), load.content(number, 3000))
        expected = harness.tree(point)
    with rig.mounted(image) as mount:
        found = harness.tree(mount.point)
    rig.check(not harness.differences(expected, found),
              f"{block_bytes}: continued by the kernel:\n" + harness.differences(expected, found))
    rig.check_clean(image, f"{block_bytes}: at the end")
    os.unlink(image)
    os.unlink(reference)


def random_order(rig, block_bytes, seed=1):
    """Many extents that come in random order: e2fsck has nothing to remark on the tree, and the kernel reads it."""
    image = rig.image(256, "-b", block_bytes)
    offsets = list(range(0, 64 << 20, 8192))
    random.Random(seed).shuffle(offsets)
    with rig.mounted(image) as mount, open(os.path.join(mount.point, "file"), "wb", buffering=0) as file:
        for number, offset in enumerate(offsets):
            os.pwrite(file.fileno(), offset.to_bytes(8, "little") * 512, offset)
            if number % 1000 == 999:
                os.fsync(file.fileno())
    rig.check_clean(image, f"{block_bytes}: every second block in random order, seed {seed}")
    with rig.kernel_mounted(image, "ro") as point, open(os.path.join(point, "file"), "rb") as file:
        right = all(file.read(8192)[:4096] == offset.to_bytes(8, "little") * 512 for offset in sorted(offsets))
        rig.check(right, f"{block_bytes}: random order, seed {seed}: read by the kernel")
    with rig.kernel_mounted(image) as point, open(os.path.join(point, "file"), "r+b", buffering=0) as file:
        for offset in offsets[::9]:
            os.pwrite(file.fileno(), b"k" * 4096, offset + 4096)
        expected = harness.tree(point)
    with rig.mounted(image) as mount:
        found = harness.tree(mount.point)
    rig.check(not harness.differences(expected, found),
              f"{block_bytes}: random order continued by the kernel:\n" + harness.differences(expected, found))
    os.unlink(image)


def compare(rig, expected, found, what):
    def comparable(tree):
        # Without mtime and inode number; a directory's link count stays.
        return {path: entry[:4] + entry[6:] for path, entry in tree.items()}

    difference = harness.differences(comparable(expected), comparable(found))
    rig.check(not difference, f"{what}:\n{difference}")


def test(rig):
    for block_bytes in (1024, 2048, 4096):
        kernel_to_elidefs(rig, block_bytes)
        elidefs_to_kernel(rig, block_bytes)
    for block_bytes in (1024, 4096):
        random_order(rig, block_bytes)


harness.main(test)
