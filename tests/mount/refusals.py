"""Sources and mount points that must be refused: a message that names the reason, an exit status that is not 0, no hang, and
an image without a changed byte.
"""

import os
import stat
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import harness

SUPER = 1024
COMPAT, INCOMPAT, RO_COMPAT = SUPER + 0x5C, SUPER + 0x60, SUPER + 0x64


# Nothing is written behind the mount's back, so that a hash tells who wrote.
QUIET = ["-E", "lazy_itable_init=0,lazy_journal_init=0"]


def refused(rig, image, words, what, options="", point=None, hashed=None):
    """At least one of `words` must be in the message. `hashed` (the image, if that is a file) must stay as it is."""
    if hashed is None and os.path.exists(image) and stat.S_ISREG(os.stat(image).st_mode):
        hashed = image
    before = harness.hash_file(hashed) if hashed else None
    point = point or rig.new_folder()
    command = [harness.ELIDEFS, "mount"] + (["-o", options] if options else []) + [image, point]
    status, output = harness.run(*command, check=False, timeout=60)
    if not rig.check(status not in (0, -9, -11, -6), f"{what}: exit status {status}, output {output!r}"):
        if status == 0:
            harness.run("umount", "-l", point, check=False)
        return
    rig.check(any(word.lower() in output.lower() for word in words), f"{what}: the message names none of {words}: {output!r}")
    if hashed:
        rig.equal(harness.hash_file(hashed), before, f"{what}: hash of the image")


def patch(path, offset, data):
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(data)


def set_bits(path, offset, bits):
    with open(path, "r+b") as file:
        file.seek(offset)
        value = struct.unpack("<I", file.read(4))[0]
        file.seek(offset)
        file.write(struct.pack("<I", value | bits))


def set_feature(rig, image, offset, bits):
    """Also recomputes the checksum of the superblock, so that the feature alone is wrong."""
    set_bits(image, offset, bits)
    with open(image, "rb") as file:
        file.seek(SUPER)
        block = file.read(1024)
    if struct.unpack_from("<I", block, 0x64)[0] & 0x400:
        patch(image, SUPER + 0x3FC, struct.pack("<I", crc32c(block[:0x3FC])))


def crc32c(data, value=0xFFFFFFFF):
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value


def features(rig):
    made = [
        ("no journal", ["-O", "^has_journal"], ["journal"]),
        ("bigalloc", ["-O", "bigalloc", "-C", "16384"], ["bigalloc"]),
        ("quota", ["-O", "quota"], ["quota"]),
        ("project", ["-O", "project,quota"], ["project", "quota"]),
        ("encrypt", ["-O", "encrypt"], ["encrypt"]),
        ("casefold", ["-O", "casefold"], ["casefold"]),
        ("verity", ["-O", "verity"], ["verity"]),
        ("inline_data", ["-O", "inline_data"], ["inline_data", "inline data"]),
        ("ea_inode", ["-O", "ea_inode"], ["ea_inode"]),
        ("large_dir", ["-O", "large_dir"], ["large_dir", "largedir"]),
        ("mmp", ["-O", "mmp"], ["mmp"]),
        ("meta_bg", ["-O", "meta_bg,^resize_inode"], ["meta_bg"]),
        ("sparse_super2", ["-O", "sparse_super2,^resize_inode"], ["sparse_super2"]),
        ("uninit_bg", ["-O", "^metadata_csum,uninit_bg"], ["uninit_bg", "gdt_csum"]),
    ]
    for name, options, words in made:
        refused(rig, rig.image(32, *options), words, name)
    flipped = [
        ("compression", INCOMPAT, 0x1, ["compression"]),
        ("dirdata", INCOMPAT, 0x1000, ["dirdata", "dir_data", "dirent"]),
        ("an unknown incompatible feature", INCOMPAT, 0x40000000, ["40000000", "unknown"]),
        ("an unknown read-only feature", RO_COMPAT, 0x40000000, ["40000000", "unknown"]),
        ("shared_blocks", RO_COMPAT, 0x4000, ["shared_blocks"]),
        ("readonly", RO_COMPAT, 0x1000, ["readonly", "read-only"]),
    ]
    for name, offset, bits, words in flipped:
        image = rig.image(16)
        set_feature(rig, image, offset, bits)
        refused(rig, image, words, name)


def external_journal(rig):
    journal = rig.path("journal")
    with open(journal, "wb") as file:
        file.truncate(16 << 20)
    harness.run("mke2fs", "-q", "-F", "-O", "journal_dev", "-b", "4096", journal)
    refused(rig, journal, ["journal"], "a journal device")
    loop = rig.loop(journal)
    image = rig.path("external")
    with open(image, "wb") as file:
        file.truncate(32 << 20)
    harness.run("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-J", f"device={loop}", image)
    refused(rig, image, ["external journal", "journal"], "an external journal")
    rig.detach(loop)


def damage(rig):
    image = rig.image(32)
    os.truncate(image, 16 << 20)
    refused(rig, image, ["smaller", "truncated", "size", "bytes", "beyond"], "a truncated image")
    image = rig.image(32)
    patch(image, SUPER, b"\0" * 1024)
    refused(rig, image, ["ext4", "magic", "superblock"], "a zeroed superblock")
    image = rig.path("noise")
    with open(image, "wb") as file:
        file.write(os.urandom(8 << 20))
    refused(rig, image, ["ext4", "magic", "superblock"], "an image of noise")
    image = rig.path("empty")
    with open(image, "wb"):
        pass
    refused(rig, image, ["ext4", "small", "size", "empty", "superblock"], "an empty file")
    image = rig.image(32)
    patch(image, SUPER + 0x28, struct.pack("<I", 12345))  # inodes per group; its checksum is wrong now
    refused(rig, image, ["checksum"], "a superblock with a wrong checksum")
    image = rig.image(32, "-b", "4096")
    patch(image, 4096 + 0x1E, b"\xAA\x55")  # bg_checksum of the first group
    refused(rig, image, ["checksum", "group"], "a group descriptor with a wrong checksum")
    marked_with_errors(rig)


def marked_with_errors(rig):
    """Not refused, but read-only with a word about it, and untouched."""
    image = rig.image(32)
    harness.run("debugfs", "-w", "-R", "set_super_value state 2", image)
    before = harness.hash_file(image)
    with rig.mounted(image) as mount:
        rig.check(mount.stat()["read_only"], "a volume marked with errors is mounted read-write")
        rig.check("e2fsck" in mount.stat()["read_only_reason"], "no word of e2fsck about a volume marked with errors")
        status, _ = harness.run("touch", os.path.join(mount.point, "x"), check=False)
        rig.check(status != 0, "a volume marked with errors can be written")
    rig.equal(harness.hash_file(image), before, "a volume marked with errors: hash of the image")


def places(rig):
    image = rig.image(16)
    refused(rig, image, ["no such file", "missing"], "a mount point that does not exist", point=rig.path("nowhere"))
    with open(rig.path("file"), "wb"):
        pass
    refused(rig, image, ["not a directory"], "a mount point that is a file", point=rig.path("file"))
    refused(rig, rig.path("no image"), ["no such file"], "a source that does not exist")
    refused(rig, rig.new_folder(), ["neither", "directory", "not a"], "a source that is a folder")
    refused(rig, "/dev/null", ["neither", "block device", "not a"], "a character device")


BUSY = ["mounted", "in use", "busy"]


def mounted_by_elidefs(rig):
    loop = rig.loop(rig.image(32))
    with rig.mounted(loop) as mount:
        refused(rig, loop, BUSY, "a device that elidefs has mounted")
        refused(rig, loop, BUSY, "the same mount again", point=mount.point)
        with open(os.path.join(mount.point, "alive"), "w") as file:
            file.write("yes")
    rig.check_clean(loop, "after the refused mounts")
    backing = rig.image(32)
    other = rig.loop(backing)
    with rig.mounted(other):
        refused(rig, backing, ["loop"] + BUSY, "the file below a loop device in use")
    rig.detach(loop)
    rig.detach(other)


def mounted_by_kernel(rig):
    """The message about an image names the loop device that the kernel has put over it."""
    image = rig.image(32, *QUIET)
    with rig.kernel_mounted(image) as point:
        loop = harness.run("losetup", "--noheadings", "--output", "NAME", "--associated", image)[1].strip()
        rig.check(loop.startswith("/dev/loop"), f"mount -o loop made no loop device: {loop!r}")
        with open(os.path.join(point, "alive"), "w") as file:
            file.write("yes")
        harness.run("sync", "--file-system", point)
        refused(rig, image, [loop], "an image that the kernel has mounted through a loop device")
        refused(rig, loop, BUSY, "the loop device of a kernel's mount", hashed=image)
        with open(os.path.join(point, "alive")) as file:
            rig.equal(file.read(), "yes", "a file on the kernel's mount after the refusals")
    rig.check_clean(image, "after the kernel's mount")
    rig.mount(image).unmount()
    loop = rig.loop(image)
    with rig.kernel_mounted(loop) as point:
        harness.run("sync", "--file-system", point)
        refused(rig, loop, BUSY, "a device that the kernel has mounted", hashed=image)
        refused(rig, image, [loop], "the file below a device that the kernel has mounted")
    rig.detach(loop)


def two_ways_to_one_file(rig):
    """Two devices over the same bytes are one volume with two writers."""
    image = rig.image(32)
    first, second = rig.loop(image), rig.loop(image)
    refused(rig, first, [second], "a loop device beside another one over the same file", hashed=image)
    rig.detach(second)
    with rig.mounted(image_of_its_own := rig.image(32)):
        late = rig.loop(image_of_its_own)
        refused(rig, late, BUSY, "a loop device over an image that elidefs has mounted")
        rig.detach(late)
    rig.detach(first)
    # The name under which the loop device was made is gone.
    link = rig.new_path("link")
    os.link(image, link)
    nameless = rig.loop(link)
    os.unlink(link)
    refused(rig, image, [nameless], "an image below a loop device whose name for it is gone")
    refused(rig, nameless, ["no name"], "a loop device whose file has no name", hashed=image)
    rig.detach(nameless)
    # Two halves of one file are two volumes.
    halves = rig.new_path("halves")
    with open(halves, "wb") as file:
        file.truncate(64 << 20)
    low = harness.run("losetup", "--find", "--show", "--sizelimit", str(32 << 20), halves)[1].strip()
    high = harness.run("losetup", "--find", "--show", "--offset", str(32 << 20), halves)[1].strip()
    for loop in (low, high):
        harness.run("mkfs.ext4", "-q", "-F", loop)
    with rig.mounted(low), rig.mounted(high):
        pass
    harness.run("losetup", "--detach", low)
    harness.run("losetup", "--detach", high)


def damaged_root(rig):
    image = rig.image(16)
    harness.run("debugfs", "-w", "-R", "set_inode_field <2> mode 0100644", image)
    refused(rig, image, ["root"], "a root that is no directory")
    refused(rig, "", ["empty"], "an empty name of the source", hashed=image)
    large = rig.new_path("image")
    with open(large, "wb") as file:
        file.truncate(256 << 20)
    if harness.run("mkfs.ext4", "-q", "-F", "-b", "65536", large, check=False)[0] == 0:
        refused(rig, large, ["64 KiB"], "blocks of 64 KiB")


def on_an_elidefs_mount(rig):
    for options in ("", "writeback_cache"):
        with rig.mounted(rig.image(64), options) as outer:
            inner = os.path.join(outer.point, "inner")
            with open(inner, "wb") as file:
                file.truncate(8 << 20)
            harness.run("mkfs.ext4", "-q", "-F", inner)
            refused(rig, inner, ["elidefs"], "an image that lives on an elidefs mount")
            link = rig.new_path("link")
            os.symlink(inner, link)
            refused(rig, link, ["elidefs"], "a link to an image on an elidefs mount")
            loop = rig.loop(inner)
            refused(rig, loop, ["elidefs"], "a loop device over an image on an elidefs mount", hashed=inner)
            second = rig.loop(loop)
            refused(rig, second, ["elidefs"], "a loop device over one over an image on an elidefs mount", hashed=inner)
            refused(rig, loop, ["elidefs"], "the same, read-only", options="ro", hashed=inner)
            rig.detach(second)
            rig.detach(loop)


def test(rig):
    features(rig)
    external_journal(rig)
    damage(rig)
    places(rig)
    mounted_by_elidefs(rig)
    mounted_by_kernel(rig)
    two_ways_to_one_file(rig)
    damaged_root(rig)
    on_an_elidefs_mount(rig)


harness.main(test)
