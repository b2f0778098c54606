"""Every way to end a mount leaves a clean volume with all data, dirty pages of the kernel included; a busy mount stays."""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import harness
import load

FILES = 20
BYTES = 1 << 20


def fill(point):
    for number in range(FILES):
        load.write_file(os.path.join(point, f"file{number}"), load.content(number, BYTES))


def check_volume(rig, image, what):
    rig.check_clean(image, what)
    with open(image, "rb") as file:
        file.seek(1024 + 0x60)
        rig.check(not file.read(1)[0] & 4, f"{what}: needs_recovery is set")
    with rig.kernel_mounted(image, "ro") as point:
        for number in range(FILES):
            try:
                with open(os.path.join(point, f"file{number}"), "rb") as file:
                    rig.check(file.read() == load.content(number, BYTES), f"{what}: file{number} differs")
            except OSError as error:
                rig.check(False, f"{what}: {error}")


def endings(rig):
    ways = {
        "SIGTERM": lambda mount: os.kill(mount.pid, signal.SIGTERM),
        "SIGINT": lambda mount: os.kill(mount.pid, signal.SIGINT),
        "umount": lambda mount: harness.run("umount", mount.point),
        "elidefs unmount": lambda mount: harness.run(harness.ELIDEFS, "unmount", mount.point),
    }
    for options in ("", "writeback_cache"):
        for name, end in ways.items():
            what = f"{name}, {options or 'default'}"
            image = rig.image(64)
            mount = rig.mount(image, options)
            fill(mount.point)
            end(mount)
            if name == "elidefs unmount":
                rig.check(not harness.process_exists(mount.pid), f"{what}: returned before the daemon had ended")
            mount.wait_for_exit()
            rig.check(not mount.is_mounted(), f"{what}: still mounted")
            check_volume(rig, image, what)
            os.unlink(image)


def busy(rig):
    """A signal on a busy mount is not obeyed by force: it stays usable, and ends once nobody uses it."""
    image = rig.image(64)
    mount = rig.mount(image)
    fill(mount.point)
    file = open(os.path.join(mount.point, "file0"), "r+b")
    status, output = harness.run("umount", mount.point, check=False)
    rig.check(status != 0, "umount of a busy mount succeeds")
    status, output = harness.run(harness.ELIDEFS, "unmount", mount.point, check=False)
    rig.check(status != 0, "elidefs unmount of a busy mount succeeds")
    rig.check("busy" in output.lower() or "use" in output.lower(), f"elidefs unmount does not say busy: {output!r}")
    os.kill(mount.pid, signal.SIGTERM)
    time.sleep(1)
    if rig.check(harness.process_exists(mount.pid) and mount.is_mounted(), "SIGTERM ends a busy mount"):
        file.seek(0)
        rig.check(file.read(100) == load.content(0, 100), "a busy mount is not readable after SIGTERM")
        file.seek(0)
        file.write(load.content(0, 100))
        file.flush()
        os.fsync(file.fileno())
    file.close()
    # Either the daemon takes the mount down by itself now, or the next request does.
    if not harness.wait_until(lambda: not harness.process_exists(mount.pid), 5):
        harness.run(harness.ELIDEFS, "unmount", mount.point)
    mount.wait_for_exit()
    check_volume(rig, image, "busy mount")


def deleted_but_open(rig):
    """Files that are open without a name are gone after the end, their blocks free."""
    image = rig.image(64)
    mount = rig.mount(image)
    fill(mount.point)
    path = os.path.join(mount.point, "orphan")
    file = open(path, "w+b")
    file.write(b"x" * BYTES)
    file.flush()
    os.unlink(path)
    file.seek(0)
    rig.check(file.read(10) == b"x" * 10, "a file without a name is not readable")
    file.close()
    mount.unmount()
    check_volume(rig, image, "deleted while open")


def test(rig):
    endings(rig)
    busy(rig)
    deleted_but_open(rig)


harness.main(test)
