"""A few hundred small calls, done on elidefs and on the kernel's ext4: results, errors and the tree must be the same."""

import errno
import fcntl
import os
import stat
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import harness


class Recorder:
    """Does calls below one root and notes what each gave."""

    def __init__(self, root):
        self.root, self.results, self.fds = root, [], {}

    def path(self, name):
        return os.path.join(self.root, name)

    def note(self, what, call, *arguments, **keywords):
        try:
            value = call(*arguments, **keywords)
        except OSError as error:
            value = errno.errorcode.get(error.errno, error.errno)
        self.results.append((what, value))
        return value

    def stat(self, name):
        def facts():
            status = os.lstat(self.path(name))
            size = None if stat.S_ISDIR(status.st_mode) else status.st_size
            return oct(status.st_mode), status.st_nlink, status.st_uid, status.st_gid, size, status.st_rdev
        return self.note(f"stat {name}", facts)

    def list(self, name):
        return self.note(f"list {name}", lambda: sorted(os.listdir(self.path(name))))

    def open(self, name, flags, mode=0o644):
        def call():
            self.fds[name] = os.open(self.path(name), flags, mode)
        return self.note(f"open {name} {flags:o}", call)

    def close(self, name):
        if name in self.fds:
            self.note(f"close {name}", os.close, self.fds.pop(name))

    def data(self, name):
        def call():
            with open(self.path(name), "rb") as file:
                return file.read()
        return self.note(f"read {name}", call)

    def create(self, name, data=b""):
        self.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        if data and name in self.fds:
            self.note(f"write {name}", lambda: os.write(self.fds[name], data))
        self.close(name)


def names(r):
    for name in ("a", "b", "a", "a" * 255, "a" * 256, "missing/x", "a/x", "", ".", ".."):
        r.create(name, b"1")
        r.note(f"mkdir {name[:9]}", os.mkdir, r.path(name))
    for name in ("d1", "d1/d2", "d1/d2/d3", "d1", "full"):
        r.note(f"mkdir {name}", os.mkdir, r.path(name))
        r.stat(name)
    r.create("full/x", b"x")
    for name in ("full", "d1/d2/d3", "a", "missing", "d1/d2/d3", "d1"):
        r.note(f"rmdir {name}", os.rmdir, r.path(name))
    for name in ("b", "b", "d1", "missing", "a/x", "full/"):
        r.note(f"unlink {name}", os.unlink, r.path(name))
    for name in ("", "d1", "full", "missing", "a"):
        r.list(name)
    r.note("many", lambda: [r.create(f"d1/file{number}", b"m") for number in range(100)] and None)
    r.list("d1")
    r.stat("d1")
    r.note("prune", lambda: [os.unlink(r.path(f"d1/file{number}")) for number in range(0, 100, 2)] and None)
    r.list("d1")
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREAT | os.O_EXCL, os.O_DIRECTORY, os.O_RDONLY | os.O_NOFOLLOW):
        for name in ("a", "full", "missing", "d1/d2"):
            r.open(name, flags)
            r.close(name)


def links(r):
    r.create("l0", b"links")
    for source, target in (("l0", "l1"), ("l0", "l1"), ("l0", "full/l2"), ("missing", "l3"), ("full", "l4"), ("l0", "a/x"),
                           ("l1", "l5")):
        r.note(f"link {source} {target}", os.link, r.path(source), r.path(target))
        r.stat("l0")
    r.note("unlink l0", os.unlink, r.path("l0"))
    r.stat("l1")
    r.data("full/l2")
    for length in (1, 59, 60, 61, 200, 1023, 4095, 4096):
        r.note(f"symlink {length}", os.symlink, "s" * length, r.path(f"s{length}"))
        r.note(f"readlink {length}", os.readlink, r.path(f"s{length}"))
        r.stat(f"s{length}")
    r.note("symlink over", os.symlink, "x", r.path("l1"))
    r.note("symlink to l1", os.symlink, "l1", r.path("to_l1"))
    r.data("to_l1")
    r.note("loop", os.symlink, "loop", r.path("loop"))
    r.data("loop")
    r.note("readlink of a file", os.readlink, r.path("l1"))
    r.open("to_l1", os.O_RDONLY | os.O_NOFOLLOW)
    for mode in (stat.S_IFIFO | 0o600, stat.S_IFSOCK | 0o600, stat.S_IFCHR | 0o600, stat.S_IFBLK | 0o640):
        name = f"node{mode:o}"
        r.note(f"mknod {name}", os.mknod, r.path(name), mode, os.makedev(7, 300000))
        r.stat(name)


def renames(r):
    for name in ("ra", "rb", "rc"):
        r.create(name, name.encode())
    for name in ("rd", "rd/sub", "re", "rf", "rf/x"):
        r.note(f"mkdir {name}", os.mkdir, r.path(name))
    cases = [("ra", "rx"), ("missing", "ry"), ("rx", "rb"), ("rb", "rb"), ("rb", "rd"), ("rd", "rb"), ("rd", "re"),
             ("re", "re/sub/deeper"), ("re", "re"), ("re", "rf"), ("re/sub", "rf/sub"), ("rf/sub", "sub2"), ("rb", "rf/rb"),
             ("rc", "rf/rb"), ("re", "sub2"), ("rf", "sub2/rf"), ("sub2/rf/x", "sub2/rf/y"), (".", "dot"), ("rf/.", "q"),
             ("rb", "a/x"), ("sub2/rf", "n" * 256), ("sub2/rf", "n" * 255)]
    for source, target in cases:
        r.note(f"rename {source} {target[:9]}", os.rename, r.path(source), r.path(target))
        r.list("")
        r.list("rf")
        r.stat("sub2")
        r.stat("")
    r.create("h1", b"h")
    r.note("link", os.link, r.path("h1"), r.path("h2"))
    r.note("rename of two names of one file", os.rename, r.path("h1"), r.path("h2"))
    r.stat("h1")
    r.stat("h2")


def data(r):
    r.open("f", os.O_RDWR | os.O_CREAT)
    fd = r.fds.get("f")
    for offset, length in ((0, 10), (5, 3), (4090, 12), (100000, 1), (8192, 4096), (0, 0), (1 << 20, 5), (99999, 2)):
        r.note(f"pwrite {offset} {length}", os.pwrite, fd, bytes([offset % 251 + 1]) * length, offset)
        r.stat("f")
    for offset, length in ((0, 20), (4000, 200), (99990, 30), (1 << 20, 100), (1 << 21, 10), (50000, 4096)):
        r.note(f"pread {offset} {length}", os.pread, fd, length, offset)
    for size in (100003, 100000, 50, 5000, 0, 3, 1 << 33, 12345, 4096, 4097):
        r.note(f"ftruncate {size}", os.ftruncate, fd, size)
        r.stat("f")
        r.note("tail", os.pread, fd, 64, max(0, size - 32))
    r.note("ftruncate -1", os.ftruncate, fd, -1)
    r.note("truncate of a folder", os.truncate, r.path("full"), 0)
    r.note("truncate beyond", os.truncate, r.path("f"), 1 << 60)
    for whence in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
        r.note(f"lseek {whence}", os.lseek, fd, 10, whence)
    r.close("f")
    r.data("f")
    r.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    other = os.open(r.path("log"), os.O_WRONLY | os.O_APPEND)
    for number in range(20):
        r.note("append", os.write, r.fds["log"] if number % 2 else other, f"line {number}\n".encode())
        r.note("pwrite ignores the offset", os.pwrite, other, b"#", 0)
    os.close(other)
    r.close("log")
    r.data("log")
    for flags in (os.O_TRUNC | os.O_RDWR, os.O_WRONLY, os.O_RDONLY):
        r.open("log", flags)
        r.note("write", lambda: os.write(r.fds["log"], b"w"))
        r.note("read", lambda: os.read(r.fds["log"], 1))
        r.close("log")
    for flag in (os.O_SYNC, os.O_DSYNC):
        r.open("synced", os.O_RDWR | os.O_CREAT | flag)
        r.note("write synced", lambda: os.write(r.fds["synced"], b"s" * 5000))
        r.close("synced")
    r.data("synced")


def without_a_name(r):
    r.open("gone", os.O_RDWR | os.O_CREAT)
    fd = r.fds["gone"]
    os.write(fd, b"g" * 100000)
    r.note("unlink gone", os.unlink, r.path("gone"))
    r.note("fstat", lambda: (os.fstat(fd).st_nlink, os.fstat(fd).st_size))
    r.note("pread", os.pread, fd, 5, 99998)
    r.note("pwrite", os.pwrite, fd, b"more", 200000)
    r.note("ftruncate", os.ftruncate, fd, 7)
    r.note("fsync", os.fsync, fd)
    r.note("pread", os.pread, fd, 100, 0)
    r.stat("gone")
    r.create("gone", b"another")
    r.note("close", os.close, r.fds.pop("gone") if "gone" in r.fds else fd)
    r.data("gone")


def attributes(r):
    r.create("attr", b"x")
    for mode in (0o000, 0o777, 0o4711, 0o2755, 0o1644):
        r.note(f"chmod {mode:o}", os.chmod, r.path("attr"), mode)
        r.stat("attr")
    for uid, gid in ((1, 2), (-1, 70000), (4000000000, -1), (0, 0)):
        r.note(f"chown {uid} {gid}", os.chown, r.path("attr"), uid, gid)
        r.stat("attr")
    for times in ((0, 0), (1500000000123456789, 1600000000987654321), (-1000000000, 4102444800000000001), (1 << 33, 1)):
        r.note("utime", os.utime, r.path("attr"), ns=times)
        r.note("times", lambda: (os.stat(r.path("attr")).st_atime_ns, os.stat(r.path("attr")).st_mtime_ns))
    for name in ("attr", "full"):
        r.note("now", os.utime, r.path(name))
        r.note("is now", lambda name=name: abs(os.stat(r.path(name)).st_mtime - time.time()) < 30)
    r.note("mtime after write", lambda: os.utime(r.path("attr"), (5, 5)) or append_and_compare(r.path("attr")))
    r.note("setgid folder", lambda: os.mkdir(r.path("setgid")) or os.chown(r.path("setgid"), 0, 777)
           or os.chmod(r.path("setgid"), 0o2775))
    r.create("setgid/file")
    r.note("mkdir in it", os.mkdir, r.path("setgid/folder"))
    r.stat("setgid/file")
    r.stat("setgid/folder")


def append_and_compare(path):
    with open(path, "ab") as file:
        file.write(b"y")
    return os.stat(path).st_mtime > 5


def locks_and_syncs(r):
    r.open("lock", os.O_RDWR | os.O_CREAT)
    fd = r.fds["lock"]
    r.note("flock", fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    r.note("lockf", fcntl.lockf, fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
    for call in (os.fsync, os.fdatasync):
        r.note(call.__name__, call, fd)
    folder = os.open(r.path("full"), os.O_RDONLY | os.O_DIRECTORY)
    r.note("fsync of a folder", os.fsync, folder)
    r.note("fdatasync of a folder", os.fdatasync, folder)
    os.close(folder)
    r.close("lock")


def do_everything(root):
    r = Recorder(root)
    for group in (names, links, renames, data, without_a_name, attributes, locks_and_syncs):
        r.note(f"==== {group.__name__}", lambda: None)
        group(r)
    return r


def test(rig):
    os.umask(0o022)
    for block_bytes in (1024, 4096):
        trees, records = [], []
        for use in (rig.kernel_mounted, rig.mounted):
            image = rig.image(64, "-b", block_bytes)
            with use(image) as mount:
                point = mount if isinstance(mount, str) else mount.point
                records.append(do_everything(point).results)
                trees.append({path: entry[:4] + entry[6:] for path, entry in harness.tree(point).items()})
            rig.check_clean(image, "after all calls")
        wrong = 0
        for number, (expected, found) in enumerate(zip(*records)):
            if expected != found:
                wrong += 1
                if wrong <= 20:
                    rig.check(False, f"{block_bytes}, call {number}: kernel {expected!r:.300}, elidefs {found!r:.300}")
        rig.equal(len(records[1]), len(records[0]), "number of calls")
        difference = harness.differences(*trees)
        rig.check(not difference, f"{block_bytes}: trees differ:\n{difference}")
        print(f"{block_bytes}: {len(records[0])} calls compared", flush=True)


harness.main(test)
