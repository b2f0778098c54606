"""Fills a folder, by plain system calls, so that the kernel's ext4 and elidefs can do the same work."""

import os
import random


def content(seed, length):
    """A longer content of the same seed starts with the shorter one: randbytes does so for whole words only."""
    return random.Random(seed).randbytes(length + -length % 4)[:length]


def write_file(path, data):
    with open(path, "wb") as file:
        file.write(data)


def fill(root, small_files, sparse_gib, seed=1):
    """Deep and wide trees, long names, both kinds of symlinks, hard links, sparse and fragmented files."""
    source = random.Random(seed)
    deep = root
    for level in range(40):
        deep = os.path.join(deep, f"level{level}")
        os.mkdir(deep)
        write_file(os.path.join(deep, "leaf"), content(level, 100 + level * 37))
    many = os.path.join(root, "many")
    os.mkdir(many)
    folders = max(1, small_files // 2000)
    for number in range(folders):
        os.mkdir(os.path.join(many, f"d{number}"))
    for number in range(small_files):
        write_file(os.path.join(many, f"d{number % folders}", f"file{number:06}"),
                   content(number, source.choice((0, 1, 100, 1023, 1024, 4096, 5000))))
    names = os.path.join(root, "names")
    os.mkdir(names)
    for number in range(60):
        write_file(os.path.join(names, f"{number:02}" + "n" * 253), content(number, number))
    write_file(os.path.join(names, "ünïcödé \n\t\\ name"), b"odd")
    links = os.path.join(root, "links")
    os.mkdir(links)
    for length in (1, 10, 59, 60, 61, 500, 1000):
        os.symlink("t" * length, os.path.join(links, f"symlink{length}"))
    write_file(os.path.join(links, "hard0"), b"same")
    for number in range(1, 30):
        os.link(os.path.join(links, "hard0"), os.path.join(links, f"hard{number}"))
    os.mkfifo(os.path.join(links, "fifo"))
    os.mknod(os.path.join(links, "device"), 0o20600, os.makedev(1, 3))
    files = os.path.join(root, "files")
    os.mkdir(files)
    write_file(os.path.join(files, "large"), content(99, 3 << 20))
    fragmented(os.path.join(files, "fragmented"), source)
    sparse(os.path.join(files, "sparse"), sparse_gib << 30)
    for mode in (0o4755, 0o2711, 0o000, 0o1777):
        path = os.path.join(files, f"mode{mode:o}")
        write_file(path, b"mode")
        os.chown(path, 1000 + mode, 2000)
        os.chmod(path, mode)
    os.utime(os.path.join(files, "large"), ns=(1234567890123456789, 4102444800987654321))  # beyond 2038


def sparse(path, size):
    with open(path, "wb") as file:
        for number, at in enumerate((0, size // 3, size // 2 + 1, size - 4000)):
            file.seek(at)
            file.write(content(number, 4000))


def fragmented(path, source):
    """Many extents: every second block, in random order."""
    blocks = list(range(0, 600, 2))
    source.shuffle(blocks)
    with open(path, "wb") as file:
        for block in blocks:
            file.seek(block * 4096)
            file.write(content(block, 4096))
            file.flush()


def churn(root, seed=2):
    """Changes what `fill` made: removals, renames also onto existing names, truncates, appends."""
    source = random.Random(seed)
    many = os.path.join(root, "many")
    for folder in sorted(os.listdir(many)):
        for name in sorted(os.listdir(os.path.join(many, folder))):
            path = os.path.join(many, folder, name)
            draw = source.random()
            if draw < 0.2:
                os.unlink(path)
            elif draw < 0.25:
                os.truncate(path, source.randrange(0, 8000))
            elif draw < 0.3:
                with open(path, "ab") as file:
                    file.write(content(name, source.randrange(1, 6000)))
            elif draw < 0.35:
                os.rename(path, os.path.join(root, "files", "moved_" + name))
    os.rename(os.path.join(root, "files", "fragmented"), os.path.join(root, "files", "large"))
    os.truncate(os.path.join(root, "files", "large"), 1 << 20)
    for number in range(10, 20):
        os.unlink(os.path.join(root, "links", f"hard{number}"))
    os.rename(os.path.join(root, "level0", "level1"), os.path.join(root, "names", "moved tree"))
