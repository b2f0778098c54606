"""A load that reports each acknowledged sync, for tests that kill the daemon. usage: acknowledged_load.py FOLDER SEED

After every sync that returned 0 one line `NAME LENGTH SEED` goes to stdout, unbuffered: file NAME starts with LENGTH bytes
of content(SEED). Files are only ever extended or replaced as a whole under a new name, so a line stays true until a line
`- NAME` announces the removal (before it is begun). Ends quietly when the mount goes away; any other error, also a write
that stored less than it was given, is a line of its own. The live files are few enough for a volume of 64 MiB.
"""

import errno
import os
import random
import sys

import load

MOST_FILES = 60
GONE = (errno.ENOTCONN, errno.ECONNABORTED)


def main():
    folder, seed = sys.argv[1], int(sys.argv[2])
    source = random.Random(seed)
    files = {}
    number = 0
    while True:
        draw = source.random()
        if len(files) < 3 or (draw < 0.5 and len(files) < MOST_FILES):
            name = f"s{seed}_{number}"
            number += 1
            files[name] = (source.randrange(1 << 30), 0)
        else:
            name = source.choice(sorted(files))
        if draw > 0.9:
            report(f"- {name}")
            os.unlink(os.path.join(folder, name))
            del files[name]
            continue
        content_seed, length = files[name]
        grown = min(200000, length + source.randrange(1, 30000))
        fd = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT, 0o644)
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


try:
    main()
except OSError as error:
    if error.errno not in GONE:
        report(f"failed: {error}")
