"""A device that starts to fail under a mounted volume: a loop device over a sparse file on a small tmpfs that is full.

Writes into holes of the file then fail, and writes over what is there succeed. Flushes that fail are injected by the
simulator's tests; here the whole path is seen: device, daemon, kernel, user.
"""

import errno
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import harness


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


def test(rig):
    data_write_fails(rig)
    journal_write_fails(rig)


harness.main(test)
