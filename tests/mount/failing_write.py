"""Writes that fail on the device under a mounted volume, seen from the user: the whole path of device, daemon, kernel.

The device is a loop device over a sparse file on a small tmpfs that is full (writes into holes of the file then fail, and
writes over what is there succeed) or over the image of failing_store, which fails the writes that carry a mark.
"""

import errno
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import harness
from failing_store import FailingStore


def full_device(rig, size_mib, spare_mib, journal_sparse):
    """(loop device, function that fills the tmpfs, its folder). The journal's blocks are holes if `journal_sparse`."""
    folder = rig.new_folder("tmpfs")
    harness.run("mount", "-t", "tmpfs", "-o", f"size={spare_mib}m", "tmpfs", folder)
    image = os.path.join(folder, "image")
    with open(image, "wb") as file:
        file.truncate(size_mib << 20)
    harness.run("mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=8", "-E", "lazy_itable_init=0", image)
    if journal_sparse:
        punch_journal(image)
    loop = rig.loop(image)

    def fill_up():
        with open(os.path.join(folder, "filler"), "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"f" * 4096)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    return loop, fill_up, folder


def punch_journal(image):
    """Frees the zeroes behind the journal's superblock: reads are the same, writes need space."""
    _, output = harness.run("debugfs", "-R", "blocks <8>", image)
    blocks = sorted(int(word) for word in output.split() if word.isdigit())[8:]
    while blocks:
        count = next((number for number, block in enumerate(blocks) if block != blocks[0] + number), len(blocks))
        harness.run("fallocate", "--punch-hole", "--offset", blocks[0] * 4096, "--length", count * 4096, image)
        del blocks[:count]


def data_write_fails(rig):
    loop, fill_up, folder = full_device(rig, 64, 24, journal_sparse=False)
    mount = rig.mount(loop)
    kept = os.path.join(mount.point, "kept")
    fd = os.open(kept, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"k" * 65536, 0)
    os.fsync(fd)
    victim = os.open(os.path.join(mount.point, "victim"), os.O_RDWR | os.O_CREAT)
    os.fsync(victim)
    fill_up()
    errors = [harness.errno_of(os.pwrite, victim, b"v" * 1048576, number << 20) for number in range(8)]
    errors.append(harness.errno_of(os.fsync, victim))
    # The loop driver's own word for this failure is ENOSPC, and block devices may say so.
    rig.check(set(errors) - {0} and set(errors) <= {0, errno.EIO, errno.ENOSPC}, f"writes to a full device: errors {errors}")
    rig.check(os.pread(fd, 10, 0) == b"k" * 10, "another file is not readable any more")
    os.unlink(os.path.join(folder, "filler"))
    # Space is back: after the error was told, new writes succeed.
    harness.errno_of(os.fsync, victim)
    rig.equal(harness.errno_of(os.pwrite, victim, b"w" * 4096, 0), 0, "a write after the error was told")
    rig.equal(harness.errno_of(os.fsync, victim), 0, "its fsync")
    os.close(victim)
    os.close(fd)
    mount.unmount()
    rig.check_clean(loop, "after failed data writes")
    rig.detach(loop)


def journal_write_fails(rig):
    loop, fill_up, folder = full_device(rig, 64, 24, journal_sparse=True)
    mount = rig.mount(loop)
    kept = os.open(os.path.join(mount.point, "kept"), os.O_RDWR | os.O_CREAT)
    os.pwrite(kept, b"k" * 65536, 0)
    os.fsync(kept)
    fill_up()
    errors = []
    for number in range(2000):
        path = os.path.join(mount.point, f"f{number}")
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            errors.append(error.errno)
            break
        error = harness.errno_of(os.fsync, fd)
        again = harness.errno_of(os.fsync, fd) if error else 0
        os.close(fd)
        if error:
            errors += [error, again]
            break
    rig.check(errors and errors[0] in (errno.EIO, errno.EROFS), f"a failing journal: errors {errors}")
    rig.check(len(errors) < 2 or errors[1] == errno.EIO, f"a second fsync after the failure: {errors}")
    rig.equal(harness.errno_of(os.mkdir, os.path.join(mount.point, "late")), errno.EROFS, "mkdir after the failure")
    stat = mount.stat()
    rig.check(stat["read_only"] and stat["read_only_reason"], f"elidefs stat does not tell: {stat['read_only_reason']!r}")
    rig.check(os.pread(kept, 10, 0) == b"k" * 10, "the mount is not readable any more")
    os.close(kept)
    status, output = harness.run(harness.ELIDEFS, "unmount", mount.point, check=False)
    rig.check(harness.wait_until(lambda: not harness.process_exists(mount.pid), 60), "unmount after the failure hangs")
    rig.mounts.remove(mount)
    os.unlink(os.path.join(folder, "filler"))
    # Marked with errors: replayed and read-only until e2fsck has seen it.
    status, output = harness.run("e2fsck", "-fy", loop, check=False)
    rig.check(status in (0, 1), f"e2fsck -fy exits {status}: {output}")
    with rig.mounted(loop) as again:
        with open(os.path.join(again.point, "kept"), "rb") as file:
            rig.check(file.read() == b"k" * 65536, "what was synced before the failure is not there")
    rig.check_clean(loop, "after a failed journal and e2fsck")
    rig.detach(loop)


MARK = b"never-stored"
LOST = MARK * 4096
OLD = b"o" * len(LOST)


def opened(path, count, flags=os.O_RDWR):
    return [os.open(path, flags) for _ in range(count)]


def device_with_marked_writes_failing(rig):
    store = FailingStore(rig)
    return store, rig.loop(store.image), lambda: store.command(f"fail_write 1000000 {MARK.decode()}")


def check_after(rig, loop, store, options, what):
    """The volume was not harmed: what was written after the failure is there, of the failed write nothing."""
    rig.check_clean(loop, what)
    with rig.mounted(loop, options) as mount:
        with open(os.path.join(mount.point, "victim"), "rb") as file:
            rig.check(file.read() == b"a" * len(OLD), f"{what}: the write after the failure is not there")
        with open(os.path.join(mount.point, "grown"), "rb") as file:
            data = file.read()
            rig.check(data.startswith(OLD) and MARK not in data, f"{what}: bytes of the failed write are in the file")
    rig.detach(loop)
    store.close()


def write_behind_fails(rig):
    """The default mode: EIO at the next sync or write, once for every descriptor that was open; then all is well."""
    store, loop, start_failing = device_with_marked_writes_failing(rig)
    mount = rig.mount(loop)
    victim, grown = os.path.join(mount.point, "victim"), os.path.join(mount.point, "grown")
    for path in (victim, grown):
        with open(path, "wb") as file:
            file.write(OLD)
            os.fsync(file.fileno())
    writer, by_sync, by_data_sync, by_write = opened(victim, 4)
    start_failing()
    # Acknowledged or not, the failure is known after the first sync.
    rig.check(errno.EIO in (harness.errno_of(os.pwrite, writer, LOST, 0), harness.errno_of(os.fsync, writer)),
              "neither the failed write nor its fsync reports it")
    end = os.open(grown, os.O_RDWR)
    rig.check(errno.EIO in (harness.errno_of(os.pwrite, end, LOST, len(OLD)), harness.errno_of(os.fdatasync, end)),
              "neither the failed write beyond the end nor its fdatasync reports it")
    store.command("ok")
    rig.equal(harness.errno_of(os.fsync, by_sync), errno.EIO, "the first fsync of another descriptor")
    rig.equal(harness.errno_of(os.fdatasync, by_data_sync), errno.EIO, "the first fdatasync of another descriptor")
    rig.equal(harness.errno_of(os.pwrite, by_write, b"a", 0), errno.EIO, "the first write on another descriptor")
    for fd in (writer, by_sync, by_data_sync, by_write):
        rig.equal(harness.errno_of(os.fsync, fd), 0, "an fsync after the error was told")
        rig.equal(harness.errno_of(os.pwrite, fd, b"a" * len(OLD), 0), 0, "a write after the error was told")
        rig.equal(harness.errno_of(os.fsync, fd), 0, "its fsync")
        os.close(fd)
    os.close(end)
    rig.check(not mount.stat()["read_only"], "a failed data write made the volume read-only")
    mount.unmount()
    check_after(rig, loop, store, "", "after failed writes")


def kernel_writeback_fails(rig):
    """With the writeback cache: EIO once per descriptor, and the kernel drops the pages that were not stored."""
    store, loop, start_failing = device_with_marked_writes_failing(rig)
    mount = rig.mount(loop, "writeback_cache")
    victim, grown = os.path.join(mount.point, "victim"), os.path.join(mount.point, "grown")
    for path in (victim, grown):
        with open(path, "wb") as file:
            file.write(OLD)
            os.fsync(file.fileno())
    writer, other, reader = opened(victim, 2) + opened(victim, 1, os.O_RDONLY)
    start_failing()
    rig.equal(harness.errno_of(os.pwrite, writer, LOST, 0), 0, "a write into the kernel's cache")
    rig.check(os.pread(reader, len(MARK), 0) == MARK, "what the cache has taken is not readable")
    end = os.open(grown, os.O_RDWR)
    rig.equal(harness.errno_of(os.pwrite, end, LOST, len(OLD)), 0, "a write beyond the end into the kernel's cache")
    for fd, name in ((writer, "the writer"), (other, "another descriptor"), (reader, "a reader"), (end, "the end's writer")):
        rig.equal(harness.errno_of(os.fsync, fd), errno.EIO, f"the first fsync of {name}")
        rig.equal(harness.errno_of(os.fsync, fd), 0, f"the second fsync of {name}")
    rig.check(store.counters()["failed_writes"] > 0, "the device failed no write")
    # The daemon asks the kernel from another thread, so that it may come a moment after the fsync.
    rig.check(harness.wait_until(lambda: os.pread(reader, len(OLD), 0) == OLD), "reads give bytes that were never stored")
    rig.check(harness.wait_until(lambda: MARK not in os.pread(end, 1 << 20, 0)), "reads beyond the old end give them")
    late = os.open(victim, os.O_RDWR)
    rig.equal(harness.errno_of(os.fsync, late), 0, "fsync of a descriptor opened after the error was told")
    store.command("ok")
    for fd in (writer, other, late):
        rig.equal(harness.errno_of(os.pwrite, fd, b"a" * len(OLD), 0), 0, "a write after the error was told")
        rig.equal(harness.errno_of(os.fsync, fd), 0, "its fsync")
    for fd in (writer, other, reader, late, end):
        os.close(fd)
    rig.check(not mount.stat()["read_only"], "a failed writeback made the volume read-only")
    mount.unmount()
    check_after(rig, loop, store, "writeback_cache", "after failed writeback")


def test(rig):
    data_write_fails(rig)
    journal_write_fails(rig)
    write_behind_fails(rig)
    kernel_writeback_fails(rig)


harness.main(test)
