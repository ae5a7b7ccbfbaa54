#!/usr/bin/env python3
"""Makes the pictures of the README: `tenantctl top` as SVG and the status page as PNG.

    docs/pictures/make.py [TENANTCTL]          (or: make pictures)

The simulated demo records the status of each of its ticks. A socket of our own plays the record to `top`, which runs
in a tmux of its own, and to `serve`, whose page a Chromium without a window draws. So no picture depends on what the
machine does meanwhile, and none needs root.
"""

import html
import json
import re
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
COLUMNS, ROWS = 80, 16
FRAMES_PER_SECOND = 5
PAGE_SIZE = "960,632"

# The palette of xterm, in the colours that a terminal of this decade has.
COLOURS = ["#1b1f24", "#e5534b", "#57ab5a", "#c69026", "#539bf5", "#b083f0", "#39c5cf", "#adbac7"]
BRIGHT = ["#768390", "#ff938a", "#6bc46d", "#daaa3f", "#6cb6ff", "#dcbdfb", "#56d4dd", "#ffffff"]
FOREGROUND, BACKGROUND = "#adbac7", "#1b1f24"
CELL_WIDTH, CELL_HEIGHT = 8.4, 18


class Player(socketserver.ThreadingUnixStreamServer):
    """Answers GetStatus and Watch (Varlink: JSON with a NUL byte behind it) from a record, at its own pace."""

    daemon_threads = True

    def __init__(self, path, frames):
        super().__init__(str(path), Conversation)
        self.frames, self.began = frames, time.monotonic()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def at(self):
        """The number of the present frame; the last one stays."""
        return min(int((time.monotonic() - self.began) * FRAMES_PER_SECOND), len(self.frames) - 1)

    def seconds_left(self):
        return max(0.0, len(self.frames) / FRAMES_PER_SECOND - (time.monotonic() - self.began))


class Conversation(socketserver.StreamRequestHandler):
    def handle(self):
        call = b""
        while piece := self.rfile.read(1):
            if piece != b"\0":
                call += piece
                continue
            request, call = json.loads(call), b""
            try:
                self.answer(request["method"].rsplit(".", 1)[-1])
            except BrokenPipeError:
                return

    def answer(self, method):
        frames = self.server.frames
        if method == "GetStatus":
            self.say({"parameters": {"status": frames[self.server.at()]}})
        elif method == "Watch":
            at = 0
            while True:
                self.say({"parameters": {"status": frames[at], "lost": 0}, "continues": True})
                while self.server.at() == at:
                    time.sleep(0.02)
                at = min(at + 1, len(frames) - 1)
        else:
            self.say({"error": "org.varlink.service.MethodNotFound", "parameters": {"method": method}})

    def say(self, message):
        self.wfile.write(json.dumps(message).encode() + b"\0")


def record(program, folder):
    file = folder / "record"
    command = [program, "demo", "--simulated", "--json", "--seconds", "30", "--record", str(file)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in file.read_text().splitlines()]


def picture_of_top(program, socket, folder, seconds):
    """The last screen of `top`, with its colours, as a terminal would be told to draw it."""
    tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
    size = ["-x", str(COLUMNS), "-y", str(ROWS)]
    subprocess.run([*tmux, "new-session", "-d", *size, program, "--socket", str(socket), "top"], check=True)
    try:
        time.sleep(seconds + 1)
        done = subprocess.run([*tmux, "capture-pane", "-e", "-p"], check=True, capture_output=True, text=True)
        return done.stdout.splitlines()
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def colour(codes, start):
    """The colour of the codes from `start` on (38;5;N, 38;2;R;G;B), and how many they are."""
    if codes[start + 1] == 5:
        number = codes[start + 2]
        if number < 16:
            return (COLOURS + BRIGHT)[number], 3
        if number >= 232:
            return "#" + f"{8 + 10 * (number - 232):02x}" * 3, 3
        levels = [0, 95, 135, 175, 215, 255]
        number -= 16
        return "#" + "".join(f"{levels[n]:02x}" for n in (number // 36, number // 6 % 6, number % 6)), 3
    return "#" + "".join(f"{n:02x}" for n in codes[start + 2 : start + 5]), 5


class Style:
    def __init__(self):
        self.reset()

    def reset(self):
        self.fore, self.back, self.bold, self.reverse, self.dim = FOREGROUND, None, False, False, False

    def take(self, codes):
        at = 0
        while at < len(codes):
            code = codes[at]
            step = 1
            if code == 0:
                self.reset()
            elif code in (1, 22):
                self.bold, self.dim = code == 1, False
            elif code == 2:
                self.dim = True
            elif code in (7, 27):
                self.reverse = code == 7
            elif 30 <= code <= 37:
                self.fore = COLOURS[code - 30]
            elif 90 <= code <= 97:
                self.fore = BRIGHT[code - 90]
            elif code == 39:
                self.fore = FOREGROUND
            elif 40 <= code <= 47:
                self.back = COLOURS[code - 40]
            elif 100 <= code <= 107:
                self.back = BRIGHT[code - 100]
            elif code == 49:
                self.back = None
            elif code == 38:
                self.fore, step = colour(codes, at)
            elif code == 48:
                self.back, step = colour(codes, at)
            at += step

    def pair(self):
        fore, back = (self.fore, self.back)
        return (back or BACKGROUND, fore) if self.reverse else (fore, back)


def svg(lines):
    """The lines of a terminal as an SVG; text stays text."""
    width, height = COLUMNS * CELL_WIDTH + 24, ROWS * CELL_HEIGHT + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-size="14" '
        f'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace">',
        f'<rect width="100%" height="100%" rx="6" fill="{BACKGROUND}"/>',
    ]
    for row, line in enumerate(lines[:ROWS]):
        style, column = Style(), 0
        y = 10 + row * CELL_HEIGHT
        for piece in re.split(r"(\x1b\[[0-9;]*m)", line):
            if piece.startswith("\x1b["):
                style.take([int(code or 0) for code in piece[2:-1].split(";")])
                continue
            if not piece:
                continue
            (fore, back), x, wide = style.pair(), 12 + column * CELL_WIDTH, len(piece) * CELL_WIDTH
            column += len(piece)
            if back:
                parts.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{CELL_HEIGHT}" fill="{back}"/>')
            if piece.strip():
                weight = ' font-weight="bold"' if style.bold else ""
                faint = ' opacity="0.6"' if style.dim else ""
                parts.append(
                    f'<text x="{x:.1f}" y="{y + 14}" textLength="{wide:.1f}" xml:space="preserve" '
                    f'fill="{fore}"{weight}{faint}>{html.escape(piece)}</text>'
                )
    return "\n".join([*parts, "</svg>", ""])


def picture_of_page(program, socket, folder, target):
    server = subprocess.Popen(
        [program, "--socket", str(socket), "serve", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    try:
        address = re.search(r"http://\S+?/", server.stdout.readline()).group()
        # Its sandbox wants to be another user, which a container may not let it be.
        subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server",
             "--hide-scrollbars", f"--user-data-dir={folder / 'profile'}", f"--window-size={PAGE_SIZE}",
             "--virtual-time-budget=2000", f"--screenshot={target}", address],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120,
        )
    finally:
        server.kill()
        server.wait()


def main():
    program = str(Path(sys.argv[1] if len(sys.argv) > 1 else "target/demo/tenantctl").resolve())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frames = record(program, folder)
        player = Player(folder / "socket", frames)
        lines = picture_of_top(program, folder / "socket", folder, player.seconds_left())
        (HERE / "top.svg").write_text(svg(lines))
        player.began = time.monotonic()
        picture_of_page(program, folder / "socket", folder, HERE / "page.png")
    for picture in ("top.svg", "page.png"):
        print(f"docs/pictures/{picture}: {(HERE / picture).stat().st_size} bytes")


if __name__ == "__main__":
    main()
