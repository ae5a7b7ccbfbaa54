"""Pods and containers of containerd's, called over CRI as a kubelet does, with images made of what this guest has.

The client of CRI is not in Debian. Its few messages are encoded by hand: `field` is one field of a message of protobuf, with the
numbers of the fields from kubernetes/cri-api, runtime/v1/api.proto.
"""

import hashlib
import io
import json
import os
import shutil
import tarfile
from pathlib import Path

from cgroups import telling, wait_until
from containers import files_of
from host import finish, run

FOLDER = Path("/var/tmp/containerd")
STATE = Path("/run/scenario-containerd")
SOCKET = STATE / "containerd.sock"
UNIT = "scenario-containerd.service"
IMAGE = "localhost/shell:1"
# Of this namespace containerd takes the images of its CRI.
NAMESPACE = "k8s.io"
CONFIGURATION = f"""
version = 2
root = "{FOLDER}/root"
state = "{STATE}"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{IMAGE}"
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
[plugins."io.containerd.nri.v1.nri"]
  disable = false
"""
# NamespaceMode of a pod on the network of the host, which needs no plugin for networks.
NODE = 2


def field(number, value):
    """A field: bytes, text and messages by length, numbers as varints."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value if isinstance(value, bytes) else value.encode()
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def first_text(message):
    """The text of field 1, which is the only one of a reply that is read."""
    if not message:
        return ""
    assert message[0] == 1 << 3 | 2 and message[1] < 0x80, message
    return message[2 : 2 + message[1]].decode()


class Containerd:
    """A containerd with its NRI enabled, in a unit of its own, and an image of a shell."""

    def __init__(self, host):
        import grpc

        self.host = host
        self.pods = []
        for folder in (FOLDER, STATE):
            folder.mkdir()
            host.cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        host.cleanup.callback(shutil.rmtree, "/run/nri", ignore_errors=True)
        config = FOLDER / "config.toml"
        config.write_text(CONFIGURATION)
        host.cleanup.callback(finish, ["systemctl", "stop", UNIT])
        # Its shims end with the unit.
        run("systemd-run", "--quiet", f"--unit={UNIT}", "-p", "Delegate=yes", "containerd", "--config", str(config))
        with telling(self.log):
            wait_until(lambda: self.ctr("version").returncode == 0, "containerd to answer")
        self.channel = grpc.insecure_channel(f"unix://{SOCKET}")
        host.cleanup.callback(self.channel.close)
        archive = FOLDER / "image.tar"
        make_image(archive)
        imported = self.ctr("-n", NAMESPACE, "images", "import", "--snapshotter=native", str(archive))
        assert imported.returncode == 0, imported.stderr
        is_known = lambda: self.call("ImageService", "ImageStatus", field(1, field(1, IMAGE))) != b""
        with telling(self.log):
            wait_until(is_known, "the image to be known")
        host.cleanup.callback(self.remove_all)

    @staticmethod
    def log():
        return run("journalctl", "--no-pager", "-o", "cat", "-n", "60", "-u", UNIT)

    @staticmethod
    def ctr(*arguments):
        return finish(["ctr", "--address", str(SOCKET), *arguments])

    def call(self, service, method, request):
        with telling(self.log):
            return self.channel.unary_unary(f"/runtime.v1.{service}/{method}")(request, timeout=120)

    def pod(self, namespace, name, uid, script, parent="", labels=None):
        """Starts a pod with one container that runs a script; returns the identity of the container."""
        metadata = field(1, name) + field(2, uid) + field(3, namespace)
        linux = field(1, parent) + field(2, field(1, field(1, NODE)))
        entries = b"".join(field(6, field(1, key) + field(2, value)) for key, value in (labels or {}).items())
        config = field(1, metadata) + field(3, str(FOLDER)) + entries + field(8, linux)
        pod = first_text(self.call("RuntimeService", "RunPodSandbox", field(1, config)))
        self.pods.append(pod)
        container = field(1, field(1, name)) + field(2, field(1, IMAGE)) + b"".join(field(3, word) for word in ["/usr/bin/sh", "-c", script])
        created = self.call("RuntimeService", "CreateContainer", field(1, pod) + field(2, container) + field(3, config))
        identity = first_text(created)
        self.call("RuntimeService", "StartContainer", field(1, identity))
        return pod, identity

    def remove(self, pod):
        """Ends a pod with its containers."""
        self.pods.remove(pod)
        self.call("RuntimeService", "StopPodSandbox", field(1, pod))
        self.call("RuntimeService", "RemovePodSandbox", field(1, pod))

    def remove_all(self):
        for pod in list(self.pods):
            self.remove(pod)


def make_image(archive):
    """An archive as `docker save` writes it, of one layer, which sleeps: also the image of the sandboxes."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", dereference=True) as made:
        for path in sorted(files_of(["sh", "sleep"])):
            made.add(path, arcname=path.lstrip("/"))
    digest = f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"
    config = {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine],
        "os": "linux",
        "config": {"Entrypoint": ["/usr/bin/sleep", "infinity"]},
        "rootfs": {"type": "layers", "diff_ids": [digest]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    with tarfile.open(archive, "w") as made:
        for name, data in {
            "config.json": json.dumps(config).encode(),
            "layer.tar": layer.getvalue(),
            "manifest.json": json.dumps(manifest).encode(),
        }.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            made.addfile(entry, io.BytesIO(data))
