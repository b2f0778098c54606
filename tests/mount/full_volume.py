"""A volume that runs full in the default mode: ENOSPC comes at the write, when the space is really used, to one writer and
to several at once; what was accepted is there, and what is freed can be used again."""

import errno
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import harness
import load

PIECE_BYTES = 4096
PIECES = 256  # that repeat
SPARE_BLOCKS = 8  # per writer: what may stay free, since a write needs room for nodes of its file's extent tree


def fill(path, seed, sizes):
    """Appends until the volume is full; notes how many bytes were accepted."""
    pieces = load.content(seed, PIECE_BYTES * PIECES)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    size = 0
    try:
        while True:
            at = size % len(pieces)
            size += os.write(fd, pieces[at:at + PIECE_BYTES - at % PIECE_BYTES])
    except OSError as error:
        sizes[path] = (size, error.errno)
    finally:
        os.fsync(fd)
        os.close(fd)


def check_filled(rig, mount, paths, what):
    sizes = {}
    threads = [threading.Thread(target=fill, args=(path, seed, sizes)) for seed, path in enumerate(paths)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    space = os.statvfs(mount.point)
    rig.check(space.f_bavail <= SPARE_BLOCKS * len(paths), f"{what}: {space.f_bavail} blocks are free at ENOSPC")
    for seed, path in enumerate(paths):
        size, error = sizes[path]
        rig.equal(error, errno.ENOSPC, f"{what}: errno of the last write")
        pieces = load.content(seed, PIECE_BYTES * PIECES)
        with open(path, "rb") as file:
            found = file.read()
        expected = (pieces * (size // len(pieces) + 1))[:size]
        rig.check(found == expected, f"{what}: {path}: {len(found)} bytes, {size} were accepted")


def test(rig):
    for block_bytes in (1024, 4096):
        image = rig.image(32, "-b", block_bytes, "-m", "0")
        with rig.mounted(image) as mount:
            one = os.path.join(mount.point, "one")
            check_filled(rig, mount, [one], f"{block_bytes}, one writer")
            os.unlink(one)
            several = [os.path.join(mount.point, f"several{number}") for number in range(3)]
            check_filled(rig, mount, several, f"{block_bytes}, three writers")
            os.unlink(several[0])
            check_filled(rig, mount, [one], f"{block_bytes}, after a removal")
        rig.check_clean(image, f"{block_bytes}, filled")


harness.main(test)
