"""A load that reports each acknowledged sync, for tests that kill the daemon. usage: acknowledged_load.py FOLDER SEED

After every sync that returned 0 one line `NAME LENGTH SEED` goes to stdout, unbuffered: file NAME starts with LENGTH bytes
of content(SEED). Files are only ever extended or replaced as a whole under a new name, so a line stays true until a line
`- NAME` announces the removal (before it is begun). Ends quietly when the mount goes away; any other error, also a write
that stored less than it was given, is a line of its own. At most 60 files of 200,000 bytes live at a
time, 12 MB: the volume must have room for them.
"""

import errno
import os
import random
import sys

import load

MOST_FILES = 60
GONE = (errno.ENOTCONN, errno.ECONNABORTED)


def run(folder, seed):
    source = random.Random(seed)
    files = {}
    number = 0
    while True:
        draw = source.random()
        is_new = len(files) < 3 or (draw < 0.5 and len(files) < MOST_FILES)
        if is_new:
            name = f"s{seed}_{number}"
            number += 1
            files[name] = (source.randrange(1 << 30), 0)
        else:
            name = source.choice(sorted(files))
        if draw > 0.9 and not is_new:
            report(f"- {name}")
            os.unlink(name, dir_fd=folder)
            del files[name]
            continue
        content_seed, length = files[name]
        grown = min(200000, length + source.randrange(1, 30000))
        fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o644, dir_fd=folder)
        write(fd, load.content(content_seed, grown)[length:], length)
        files[name] = (content_seed, grown)
        if source.random() < 0.6:
            if source.random() < 0.5:
                os.fdatasync(fd)
            else:
                os.fsync(fd)
            report(f"{name} {grown} {content_seed}")
        os.close(fd)


def write(fd, data, offset):
    """As much as is stored counts; a full volume shows at the second write."""
    while data:
        stored = os.pwrite(fd, data, offset)
        data, offset = data[stored:], offset + stored


def report(line):
    os.write(1, (line + "\n").encode())


def is_gone(folder):
    try:
        os.statvfs(folder)
    except OSError as error:
        return error.errno in GONE
    return False


def main():
    # By descriptor: when the mount is taken away, nothing of the folder below it is touched.
    folder = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY)
    try:
        run(folder, int(sys.argv[2]))
    except OSError as error:
        # A call that the end of the daemon interrupts may fail in many ways.
        if error.errno not in GONE and not is_gone(folder):
            report(f"failed: {error}")


main()
