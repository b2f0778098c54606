"""What the mount tests share: a scratch folder, loop devices, images, mounts by the daemon and by the kernel, clean-up.

In the environment: ELIDEFS, the daemon's program; ELIDEFS_BIN, the folder of the helper programs (default: beside it);
TMPDIR (default /var/tmp, which has O_DIRECT). Every script ends with `harness.main(function)`: the function gets a Rig,
fails by raising or through Rig.check, and everything it made is taken down whatever happened.
"""

import contextlib
import hashlib
import json
import os
import queue
import random
import shutil
import signal
import stat as stat_bits
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ELIDEFS = os.environ.get("ELIDEFS", "elidefs")
BIN = os.environ.get("ELIDEFS_BIN", os.path.dirname(ELIDEFS))
LONG = os.environ.get("ELIDEFS_LONG") == "1"
TIMEOUT_SECONDS = 120
# e2fsck complains of times that are to come, and a virtual machine's clock may be set back: it is told a time a day ahead.
ENVIRONMENT = dict(os.environ, LC_ALL="C", PATH=os.environ.get("PATH", "") + ":/usr/sbin:/sbin",
                   E2FSCK_TIME=str(int(time.time()) + 86400))


class Failure(Exception):
    """What a test found wrong."""


def run(*command, timeout=TIMEOUT_SECONDS, check=True, stdin=None, cwd=None):
    """Runs a program and returns (exit status, stdout and stderr together); raises on failure unless `check` is false."""
    words = [str(word) for word in command]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=cwd, env=ENVIRONMENT,
                               stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL)
    try:
        output, _ = process.communicate(stdin.encode() if stdin is not None else None, timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failure(f"{' '.join(words)}: no end after {timeout} s")
    text = output.decode(errors="replace")
    if check and process.returncode != 0:
        raise Failure(f"{' '.join(words)}: exit status {process.returncode}\n{text}")
    return process.returncode, text


def wait_until(condition, seconds=20):
    """Polls until the condition holds; returns whether it did."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def process_state(pid):
    """The letter of /proc/PID/stat; Z if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def process_exists(pid):
    return process_state(pid) != "Z"


def errno_of(call, *arguments, timeout=60):
    """The errno of the OSError that the call raises, 0 if it returns. A call that does not come back is a Failure."""
    results = queue.SimpleQueue()

    def body():
        try:
            call(*arguments)
            results.put(0)
        except OSError as error:
            results.put(error.errno)
        except BaseException as error:
            results.put(error)

    threading.Thread(target=body, daemon=True).start()
    try:
        result = results.get(timeout=timeout)
    except queue.Empty:
        raise Failure(f"{call.__name__}: no end after {timeout} s") from None
    if isinstance(result, BaseException):
        raise result
    return result


def hash_file(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def hash_sparse(path):
    """Size, blocks and the content of windows: around the places where load.sparse writes, and at 200 random ones."""
    status = os.stat(path)
    size = status.st_size
    source = random.Random(size)
    places = [0, size // 3, size // 2 + 1, size - 4000] + [source.randrange(size) for _ in range(200)]
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for place in places:
            digest.update(os.pread(file.fileno(), 65536, max(0, place - 32768)))
    return f"{digest.hexdigest()} {status.st_blocks}"


def tree(root, inodes=True):
    """path -> what stat and the content say, for all below root but lost+found. Link groups by inode number."""
    result = {}
    for folder, folders, files in os.walk(root):
        if folder == root and "lost+found" in folders:
            folders.remove("lost+found")
        for name in folders + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            entry = [oct(status.st_mode), status.st_nlink, status.st_uid, status.st_gid, status.st_mtime_ns]
            if inodes:
                entry.append(status.st_ino)
            if stat_bits.S_ISLNK(status.st_mode):
                entry.append(os.readlink(path))
            elif stat_bits.S_ISREG(status.st_mode):
                entry += [status.st_size, hash_sparse(path) if status.st_size > 1 << 28 else hash_file(path)]
            result[os.path.relpath(path, root)] = entry
    return result


def differences(expected, found, most=5):
    """The first few names on which two trees differ, as text; empty if they agree."""
    lines = []
    for path in sorted(set(expected) | set(found)):
        if expected.get(path) != found.get(path):
            lines.append(f"{path}: expected {expected.get(path)}, found {found.get(path)}")
    return "\n".join(lines[:most] + ([f"... {len(lines)} in all"] if len(lines) > most else []))


class Mount:
    """A volume served by the daemon. `pid` is the daemon's."""

    def __init__(self, rig, source, point, options):
        self.rig, self.source, self.point = rig, source, point
        # Commits by age would add flushes at odd moments.
        words = ["commit=3600"] + ([options] if options else [])
        run(ELIDEFS, "mount", "-o", ",".join(words), source, point)
        self.pid = self.stat()["pid"]

    def stat(self):
        return json.loads(run(ELIDEFS, "stat", self.point, "--json")[1])

    def is_mounted(self):
        with open("/proc/self/mountinfo") as file:
            return any(line.split()[4] == self.point for line in file)

    def wait_for_exit(self, seconds=60):
        if not wait_until(lambda: not process_exists(self.pid), seconds):
            raise Failure(f"the daemon {self.pid} does not end")
        self.rig.mounts = [mount for mount in self.rig.mounts if mount is not self]

    def unmount(self):
        run(ELIDEFS, "unmount", self.point)
        self.wait_for_exit()

    def kill(self):
        """kill -9 and removal of the dead mount."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.wait_for_exit()
        if self.is_mounted():
            run("umount", "-l", self.point)


class Rig:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="elidefs_mount.", dir=os.environ.get("TMPDIR", "/var/tmp"))
        self.mounts = []
        self.helpers = []  # Popen objects, killed last of all
        self.failures = []
        self.count = 0

    # Results.
    def check(self, condition, message):
        if not condition:
            self.failures.append(message)
            print("FAILED:", message, flush=True)
        return condition

    def equal(self, found, expected, what):
        return self.check(found == expected, f"{what}: {found!r}, expected {expected!r}")

    # Things with a name in the scratch folder.
    def path(self, name):
        return os.path.join(self.folder, name)

    def new_path(self, prefix):
        self.count += 1
        return self.path(f"{prefix}{self.count}")

    def new_folder(self, prefix="point"):
        path = self.new_path(prefix)
        os.mkdir(path)
        return path

    def image(self, size_mib, *mkfs_options, fs="ext4"):
        path = self.new_path("image")
        with open(path, "wb") as file:
            file.truncate(size_mib << 20)
        run("mkfs." + fs, "-q", "-F", *mkfs_options, path)
        return path

    def copy_of(self, path):
        """With the same holes, so that a large and mostly empty image costs little."""
        copy = self.new_path("copy")
        run("cp", path, copy)
        return copy

    def loop(self, path):
        """A loop device over the file; /dev/loopN."""
        return run("losetup", "--find", "--show", path)[1].strip()

    def detach(self, loop):
        run("losetup", "-d", loop)

    def mount(self, source, options="", point=None):
        mount = Mount(self, source, point or self.new_folder(), options)
        self.mounts.append(mount)
        return mount

    @contextlib.contextmanager
    def mounted(self, source, options=""):
        mount = self.mount(source, options)
        try:
            yield mount
        finally:
            mount.unmount()

    @contextlib.contextmanager
    def kernel_mounted(self, source, options="rw"):
        point = self.new_folder("kernel")
        if not stat_bits.S_ISBLK(os.stat(source).st_mode):
            options += ",loop"
        run("mount", "-t", "ext4", "-o", options, source, point)
        try:
            yield point
        finally:
            run("umount", point)

    def check_clean(self, source, what):
        """`e2fsck -fn` exits 0 and prints no complaint."""
        status, output = run("e2fsck", "-fn", source, check=False)
        complaints = [line for line in output.splitlines()
                      if line.strip() and not line.startswith(("e2fsck ", "Pass ")) and " files (" not in line]
        return self.check(status == 0 and not complaints, f"{what}: e2fsck -fn exits {status}: " + "\n".join(complaints))

    # Clean-up: in any case, touching nothing outside the scratch folder.
    def close(self):
        for mount in self.mounts:
            with contextlib.suppress(Exception):
                os.kill(mount.pid, signal.SIGKILL)
                wait_until(lambda mount=mount: not process_exists(mount.pid))
        # Before the unmounts, which take the files' paths away; a loop device in use goes with its last user.
        for name in os.listdir("/sys/block"):
            with contextlib.suppress(OSError), open(f"/sys/block/{name}/loop/backing_file") as file:
                if file.read().startswith(self.folder + "/"):
                    subprocess.run(["losetup", "-d", f"/dev/{name}"], env=ENVIRONMENT, timeout=30, check=False)
        with open("/proc/self/mountinfo") as file:
            points = [line.split()[4] for line in file]
        for point in reversed(points):
            if point.startswith(self.folder + "/"):
                subprocess.run(["umount", "-l", point], env=ENVIRONMENT, timeout=30, check=False)
        for helper in self.helpers:
            helper.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                helper.wait(timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)


def device_flushes(loop):
    """Field 16 of the device's statistics (Documentation/block/stat.rst): completed flush requests."""
    with open(f"/sys/block/{os.path.basename(loop)}/stat") as file:
        return int(file.read().split()[15])


class FlushCount:
    """Flushes since construction, by the three independent counters."""

    def __init__(self, mount, loop):
        self.mount, self.loop = mount, loop
        self.start = self.read()

    def read(self):
        stat = self.mount.stat()
        return {"kernel": device_flushes(self.loop), "issued": stat["flushes"]["issued"],
                "submitted": sum(queue["flushes_submitted"] for queue in stat["queues"])}

    def so_far(self):
        now = self.read()
        return {name: now[name] - self.start[name] for name in now}


def main(test):
    def stop(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    rig = Rig()
    try:
        test(rig)
    except Failure as failure:
        rig.check(False, str(failure))
    except BaseException:
        rig.check(False, traceback.format_exc())
    finally:
        rig.close()
    print("ok" if not rig.failures else f"{len(rig.failures)} failures", flush=True)
    sys.exit(1 if rig.failures else 0)
