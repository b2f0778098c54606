"""How many device flushes a load costs, counted by the kernel and by the daemon, between mount and unmount.

The kernel merges flushes that are in flight at the same time, so all three counters must keep the bound.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import harness

MIB = 1 << 20


def expect_at_most(rig, count, bound, what):
    flushes = count.so_far()
    print(f"{what}: {flushes}", flush=True)
    rig.check(max(flushes.values()) <= bound, f"{what}: {flushes}, at most {bound} each")


def xfs_io_load(rig, mount, loop, files, size_bytes, what):
    """Each file is written, pushed to the device and synced before the next one, all in one process."""
    names = [os.path.join(mount.point, f"x{number}") for number in range(1, files + 1)]
    block = 4096
    for kind, bound in (("new", 2), ("overwrite", 1)):
        count = harness.FlushCount(mount, loop)
        # xfs_io runs each command on every file before the next command, as its -f FILE... form does.
        command = ["xfs_io", "-c", f"pwrite -S 0x1 -b {block} 0 {size_bytes}", "-c", f"sync_range -w 0 {size_bytes}",
                   "-c", f"sync_range -a 0 {size_bytes}", "-c", "fdatasync", "-f"]
        harness.run(*command, *names, timeout=300)
        expect_at_most(rig, count, bound, f"{what}, xfs_io, {files} files of {size_bytes} bytes, {kind}")


def plain_load(rig, mount, loop, files, size_bytes, sync, direct):
    """Everything is written first, then each file is synced; no sync_file_range."""
    program = os.path.join(harness.BIN, "sync_load")
    prefix = f"p_{sync}_{direct}_{files}_{size_bytes}_"
    for kind in ("new", "overwrite"):
        arguments = ["--dir", mount.point, "--files", files, "--size", size_bytes, "--block", min(size_bytes, 65536),
                     "--sync", sync, "--prefix", prefix]
        if direct:
            arguments.append("--direct")
        if kind == "overwrite":
            arguments.append("--overwrite")
        count = harness.FlushCount(mount, loop)
        harness.run(program, *arguments, timeout=300)
        # An fsync of an overwritten file commits its times: record and log need two flushes.
        bound = 1 if kind == "overwrite" and sync == "fdatasync" else 2
        expect_at_most(rig, count, bound, f"plain, {files} files of {size_bytes} bytes, {sync}, direct={direct}, {kind}")


def one_file(rig, mount, loop):
    path = os.path.join(mount.point, "one")
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"\x01" * 4096, 0)
    os.fsync(fd)
    count = harness.FlushCount(mount, loop)
    for number in range(100):
        os.pwrite(fd, bytes([number + 1]) * 4096, 0)
        os.fdatasync(fd)
    flushes = count.so_far()
    rig.check(all(value == 100 for value in flushes.values()), f"100 x (write, fdatasync): {flushes}, 100 flushes each")
    # Clean syncs cost nothing, also while another file is being written.
    other = os.open(os.path.join(mount.point, "other"), os.O_RDWR | os.O_CREAT)
    os.pwrite(other, b"\x02" * MIB, 0)
    os.fsync(other)
    count = harness.FlushCount(mount, loop)
    for number in range(50):
        os.pwrite(other, bytes([number + 1]) * 65536, 0)
        os.fdatasync(fd)
    expect_at_most(rig, count, 0, "50 clean fdatasyncs while another file is written")
    os.close(fd)
    os.close(other)


def test(rig):
    for options in ("", "writeback_cache"):
        for files, size_bytes in ((32, 4096000), (256, 4096), (1024, 4096)):
            loop = rig.loop(rig.image(512))
            with rig.mounted(loop, options) as mount:
                xfs_io_load(rig, mount, loop, files, size_bytes, options or "default")
            rig.check_clean(loop, f"after xfs_io with {files} files, {options or 'default'}")
            rig.detach(loop)
    loop = rig.loop(rig.image(512))
    with rig.mounted(loop) as mount:
        for files, size_bytes in ((32, 4096), (32, MIB), (1024, 4096)):
            for sync in ("fdatasync", "fsync"):
                plain_load(rig, mount, loop, files, size_bytes, sync, direct=False)
        for sync in ("fdatasync", "fsync"):
            plain_load(rig, mount, loop, 32, 65536, sync, direct=True)
            plain_load(rig, mount, loop, 1024, 4096, sync, direct=True)
        one_file(rig, mount, loop)
    rig.check_clean(loop, "after the plain loads")
    rig.detach(loop)
    # No bound is promised for plain loads here; the figure is printed.
    loop = rig.loop(rig.image(256))
    with rig.mounted(loop, "writeback_cache") as mount:
        count = harness.FlushCount(mount, loop)
        harness.run(os.path.join(harness.BIN, "sync_load"), "--dir", mount.point, "--files", 32, "--size", 4096)
        print(f"writeback_cache, plain, 32 files of 4096 bytes, fdatasync, new: {count.so_far()}", flush=True)
    rig.detach(loop)


harness.main(test)
