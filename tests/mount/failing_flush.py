"""A device whose flush fails once under a mounted volume (DESIGN, "Errors"; rule E4), seen from the user: EIO for good for
the files it concerned, however many later flushes succeed, and everything that was synced before is there afterwards.
"""

import concurrent.futures
import errno
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import harness
from failing_store import FailingStore
from harness import errno_of

STABLE = b"s" * 65536
OLD, NEW = b"o" * 65536, b"n" * 65536


class Scene:
    """A volume with a stable file and two more, of which the `dirty` ones get changes that need the failing flush."""

    def __init__(self, rig, name, through_loop, options, dirty):
        self.rig, self.name, self.options, self.dirty = rig, name, options, dirty
        self.store = FailingStore(rig)
        self.source = rig.loop(self.store.image) if through_loop else self.store.image
        self.loop = self.source if through_loop else None
        self.mount = rig.mount(self.source, options)
        self.files = {}
        self.create("stable", STABLE)
        for path in ("overwritten", "extended"):
            self.create(path, OLD)
        os.mkdir(self.path("folder"))
        folder = os.open(self.path("folder"), os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def path(self, name):
        return os.path.join(self.mount.point, name)

    def create(self, name, data):
        self.files[name] = os.open(self.path(name), os.O_RDWR | os.O_CREAT)
        os.pwrite(self.files[name], data, 0)
        os.fsync(self.files[name])

    def check(self, condition, message):
        self.rig.check(condition, f"{self.name}: {message}")

    def equal(self, found, expected, what):
        self.rig.equal(found, expected, f"{self.name}: {what}")

    def make_dirty(self):
        for name in self.dirty:
            os.pwrite(self.files[name], NEW, len(OLD) if name == "extended" else 0)
        self.files["new"] = os.open(self.path("folder/new"), os.O_RDWR | os.O_CREAT)
        os.pwrite(self.files["new"], NEW, 0)

    # Both at once, so that one flush answers both: who joins the failing one must not be told a success.
    def sync_dirty_files(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda name: errno_of(os.fdatasync, self.files[name]), self.dirty))

    def succeeding_flushes(self):
        """Somebody else's, straight to the device."""
        before = self.store.counters()
        fd = os.open(self.source, os.O_RDONLY)
        for _ in range(20):
            os.fsync(fd)
        os.close(fd)
        after = self.store.counters()
        self.check(after["flushes"] >= before["flushes"] + 20 and after["failed_flushes"] == before["failed_flushes"],
                   f"flushes of the device behind the daemon's back: {before} -> {after}")

    def descriptors(self, name):
        """One from before the failure and one from after it."""
        path = "folder/new" if name == "new" else name
        late = os.open(self.path(path), os.O_RDONLY)
        try:
            yield "old descriptor", self.files[name]
            yield "new descriptor", late
        finally:
            os.close(late)

    def check_syncs(self, when):
        for name in self.dirty + ["new"]:
            for which, fd in self.descriptors(name):
                for call in (os.fdatasync, os.fsync, os.fdatasync):
                    self.equal(errno_of(call, fd), errno.EIO, f"{call.__name__} of {name}, {which}, {when}")
        for which, fd in self.descriptors("stable"):
            for call in (os.fdatasync, os.fsync):
                self.equal(errno_of(call, fd), 0, f"{call.__name__} of the stable file, {which}, {when}")
        folder = os.open(self.path("folder"), os.O_RDONLY)
        self.equal(errno_of(os.fsync, folder), errno.EIO, f"fsync of the folder of a new file, {when}")
        os.close(folder)

    def check_read_only(self):
        stat = self.mount.stat()
        self.check(stat["read_only"] and "flush" in stat["read_only_reason"],
                   f"elidefs stat: read_only {stat['read_only']}, reason {stat['read_only_reason']!r}")
        text = harness.run(harness.ELIDEFS, "stat", self.mount.point)[1]
        self.check(stat["read_only_reason"] in text, f"no reason in elidefs stat: {text}")
        refused = [(os.mkdir, self.path("late")), (os.unlink, self.path("stable")), (os.truncate, self.path("stable"), 0),
                   (os.rename, self.path("stable"), self.path("other")), (os.chmod, self.path("stable"), 0o600),
                   (os.open, self.path("late"), os.O_WRONLY | os.O_CREAT), (os.open, self.path("stable"), os.O_RDWR)]
        for call, *arguments in refused:
            self.equal(errno_of(call, *arguments), errno.EROFS, f"{call.__name__} after the failure")
        status, _ = harness.run(harness.ELIDEFS, "flush", self.mount.point, check=False)
        self.check(status != 0, "`elidefs flush` succeeds after the failure")
        # What was refused has not happened, and all is readable.
        self.equal(sorted(os.listdir(self.mount.point)), ["extended", "folder", "lost+found", "overwritten", "stable"], "the root's names")
        for name in ("stable", "overwritten", "extended", "new"):
            for which, fd in self.descriptors(name):
                self.equal(errno_of(os.pread, fd, 65536, 0), 0, f"read of {name}, {which}")
        self.equal(os.pread(self.files["stable"], 1 << 20, 0), STABLE, "the stable file's content after the failure")

    def check_late_write(self):
        error = errno_of(os.pwrite, self.files["stable"], b"x" * 4096, 4096)
        if "writeback_cache" in self.options:
            # The kernel took it; its writeback is what is refused.
            self.check(error in (0, errno.EROFS), f"a write after the failure: {error}")
            for which, fd in self.descriptors("stable"):
                for call in (os.fsync, os.fdatasync, os.fdatasync):
                    self.equal(errno_of(call, fd), errno.EIO, f"{call.__name__} behind a late write, {which}")
        else:
            self.equal(error, errno.EROFS, "a write after the failure")

    def unmount(self):
        for fd in self.files.values():
            errno_of(os.close, fd)  # with the writeback cache it writes what is dirty, and fails
        status, output = harness.run(harness.ELIDEFS, "unmount", self.mount.point, check=False)
        self.check(not self.mount.is_mounted(), f"still mounted after elidefs unmount: {output}")
        self.check(status != 0 and "e2fsck" in output, f"elidefs unmount exits {status}, says {output!r}")
        self.mount.wait_for_exit()

    def check_content(self, point, whose):
        """What was acknowledged is there; of what was not, any mixture of old and new."""
        with open(os.path.join(point, "stable"), "rb") as file:
            self.check(file.read() == STABLE, f"the stable file is not as it was synced, {whose}")
        with open(os.path.join(point, "overwritten"), "rb") as file:
            data = file.read()
        self.check(len(data) == len(OLD) and not data.strip(b"on"), f"the overwritten file: {len(data)} bytes, {whose}")
        with open(os.path.join(point, "extended"), "rb") as file:
            data = file.read()
        self.check(data in (OLD, OLD + NEW), f"the file that grew: {len(data)} bytes, {whose}")
        self.check(os.path.isdir(os.path.join(point, "folder")), f"the synced folder is gone, {whose}")

    def check_next_mounts(self):
        copy = self.rig.copy_of(self.store.image)
        with self.rig.kernel_mounted(copy) as point:
            self.check_content(point, "as the kernel recovers it")
        with self.rig.mounted(self.source, self.options) as again:
            self.check_content(again.point, "at the next mount")
            stat = again.stat()
            self.check(stat["read_only"] and "e2fsck" in stat["read_only_reason"],
                       f"before e2fsck the volume is mounted read-write: {stat['read_only_reason']!r}")
            self.equal(errno_of(os.mkdir, os.path.join(again.point, "early")), errno.EROFS, "mkdir before e2fsck")
        status, output = harness.run("e2fsck", "-fy", self.source, check=False)
        self.check(status in (0, 1), f"e2fsck -fy exits {status}: {output}")
        with self.rig.mounted(self.source, self.options) as again:
            self.check_content(again.point, "after e2fsck")
            self.check(not again.stat()["read_only"], "still read-only after e2fsck")
            with open(os.path.join(again.point, "after"), "wb") as file:
                file.write(NEW)
                os.fsync(file.fileno())
        self.rig.check_clean(self.source, f"{self.name}: after e2fsck and a mount")
        if self.loop is not None:
            self.rig.detach(self.loop)
        self.store.close()


def flush_fails(rig, through_loop, options="", skip=0, drop=False):
    """The flush behind `skip` others fails; with `drop` the device loses its cache then, and once more after the unmount."""
    name = f"{'loop' if through_loop else 'image'}, {options or 'default'}, flush {skip}{', cache lost' if drop else ''}"
    # The first flush is that of an overwrite's fdatasync, or comes before a commit's record; the second one follows it.
    scene = Scene(rig, name, through_loop, options, ["overwritten", "extended"] if skip == 0 else ["extended"])
    scene.make_dirty()
    scene.store.command(f"fail_flush 1 {skip}" + (" drop" if drop else ""))
    scene.equal(scene.sync_dirty_files(), [errno.EIO] * len(scene.dirty), "the syncs that need the flush")
    scene.equal(scene.store.counters()["failed_flushes"], 1, "flushes that the device failed")
    scene.check_syncs("at once")
    scene.check_read_only()
    before = scene.store.counters()["flushes"]
    scene.check_syncs("again")
    scene.equal(scene.store.counters()["flushes"], before, "flushes of the device by the syncs after the failure")
    scene.succeeding_flushes()
    scene.check_syncs("after flushes that succeeded")
    scene.check_late_write()
    scene.unmount()
    if drop:
        scene.store.command("power_cut")
    scene.check_next_mounts()


def test(rig):
    for options in ("", "writeback_cache"):
        flush_fails(rig, through_loop=True, options=options)
        flush_fails(rig, through_loop=True, options=options, skip=1, drop=True)
        flush_fails(rig, through_loop=False, options=options, drop=True)


harness.main(test)
