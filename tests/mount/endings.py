"""Ends of a mount that something gets in the way of: a signal while it starts, another mount with the same device number,
other places where the volume is mounted."""

import os
import random
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
import harness

SEED = int(os.environ.get("ELIDEFS_SEED", "1"))


def signals_at_the_start(rig):
    """Whenever it comes, the signal ends a mount that nobody uses."""
    source = random.Random(SEED)
    image = rig.image(32)
    for number in range(40):
        point = rig.new_folder()
        daemon = subprocess.Popen([harness.ELIDEFS, "mount", "-f", image, point], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(source.uniform(0.0, 0.05))
        daemon.send_signal(source.choice((signal.SIGTERM, signal.SIGINT, signal.SIGHUP)))
        try:
            daemon.wait(timeout=20)
        except subprocess.TimeoutExpired:
            rig.check(False, f"round {number} (ELIDEFS_SEED={SEED}): a signal during the start was swallowed")
            harness.run(harness.ELIDEFS, "unmount", point, check=False)
            daemon.kill()
            daemon.wait()
        rig.check(not os.path.ismount(point), f"round {number}: still mounted")
    rig.check_clean(image, "after signals during the start")


def same_device_number(rig):
    """The control socket is named after the device number, which the kernel gives to the next mount."""
    first = rig.mount(rig.image(16))
    device = os.stat(first.point).st_dev
    path = f"/run/elidefs/{os.major(device):x}-{os.minor(device):x}.sock"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.send(b"sta")  # half a request keeps the server waiting
        time.sleep(0.1)
        harness.run("umount", first.point)
        second = rig.mount(rig.image(16))
        if os.stat(second.point).st_dev != device:
            print("another device number: nothing to see here", flush=True)
        first.wait_for_exit()
        rig.equal(harness.run(harness.ELIDEFS, "stat", second.point, check=False)[0], 0, "stat of the second mount")
        rig.equal(harness.run(harness.ELIDEFS, "flush", second.point, check=False)[0], 0, "flush of the second mount")
    second.unmount()


def mounted_elsewhere(rig):
    """elidefs unmount waits for the volume to be closed, and says so when that depends on another mount."""
    image = rig.image(16)
    mount = rig.mount(image)
    bind = rig.new_folder()
    harness.run("mount", "--bind", mount.point, bind)
    status, output = harness.run(harness.ELIDEFS, "unmount", bind, check=False, timeout=30)
    rig.check(status != 0 and mount.point in output, f"unmount of a bind mount: {status}, {output!r}")
    rig.check(not os.path.ismount(bind) and mount.is_mounted(), "unmount of a bind mount takes down the other")
    with subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sleep", "60"]) as holder:
        time.sleep(0.3)
        status, output = harness.run(harness.ELIDEFS, "unmount", mount.point, check=False, timeout=30)
        rig.check(status != 0 and "namespace" in output, f"unmount beside another namespace: {status}, {output!r}")
        holder.kill()
    mount.wait_for_exit()
    rig.check_clean(image, "after the last namespace was gone")


def times_with_writeback_cache(rig):
    """What the kernel writes back late changes no times."""
    image = rig.image(16)
    names = ("linked", "renamed", "plain")
    with rig.mounted(image, "writeback_cache") as mount:
        files = []
        for name in names:
            path = os.path.join(mount.point, name)
            files.append(os.open(path, os.O_RDWR | os.O_CREAT))
            os.write(files[-1], b"x" * 5000)
        time.sleep(1.1)
        os.link(os.path.join(mount.point, "linked"), os.path.join(mount.point, "linked2"))
        os.rename(os.path.join(mount.point, "renamed"), os.path.join(mount.point, "renamed2"))
        time.sleep(1.1)
        for fd in files:
            os.close(fd)
        seen = {name: os.stat(os.path.join(mount.point, name)).st_mtime_ns for name in ("linked", "renamed2", "plain")}
    with rig.mounted(image) as mount:
        for name, expected in seen.items():
            rig.equal(os.stat(os.path.join(mount.point, name)).st_mtime_ns, expected, f"mtime of {name} after a remount")


def test(rig):
    signals_at_the_start(rig)
    same_device_number(rig)
    mounted_elsewhere(rig)
    times_with_writeback_cache(rig)


harness.main(test)
