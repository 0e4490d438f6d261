"""For tests: a page in headless Chromium, used like a reader with mouse and keys."""

import html
import http.server
import json
import pathlib
import re
import shutil
import subprocess
import threading
import unittest

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
DARK = "--blink-settings=preferredColorScheme=0"
NARROW = "--window-size=500,900"
SECONDS_MOST = 100

BEFORE = """<script>
const seen = {}, violations = [];
window.addEventListener('error', event => { seen.error = event.message; });
document.addEventListener('securitypolicyviolation', event => violations.push(event.blockedURI));
const key = (target, name) =>
  target.dispatchEvent(new KeyboardEvent('keydown', {key: name, bubbles: true, cancelable: true}));
const mouse = (target, name, x, y) => {
  const place = target.getBoundingClientRect();
  target.dispatchEvent(new MouseEvent(name, {bubbles: true, clientX: place.left + x,
    clientY: place.top + y}));
};
const press = name =>
  [...document.querySelectorAll('button')].find(one => one.textContent === name).click();
const type = text => {
  document.activeElement.value = text;
  document.activeElement.dispatchEvent(new Event('input'));
};
const cells = (label, column) => [...document.querySelectorAll(
  'table[aria-label="' + label + '"] tbody tr')].map(row => row.cells[column].textContent);
const colours = canvas => {
  const found = new Set(), all = canvas.getContext('2d').getImageData(0, 0, canvas.width,
    canvas.height).data;
  for (let i = 0; i < all.length; i += 4)
    if (all[i + 3] === 255)
      found.add('#' + [0, 1, 2].map(j => all[i + j].toString(16).padStart(2, '0')).join(''));
  return [...found];
};
</script><script>{
"""
# No content of a page may send a request.
AFTER = """}</script><script>
seen.requests = performance.getEntriesByType('resource').map(entry => entry.name);
seen.dark = matchMedia('(prefers-color-scheme: dark)').matches;
seen.back_color = getComputedStyle(document.body).backgroundColor;
seen.too_wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
fetch('ASKED').catch(() => {});
new Image().src = 'ASKED';
document.body.append(Object.assign(document.createElement('script'), {src: 'ASKED'}));
setTimeout(() => {
  seen.violations = violations.length;
  document.body.textContent = 'SEEN' + JSON.stringify(seen) + 'NEES';
}, 300);
</script>"""


class _Listener(http.server.BaseHTTPRequestHandler):
    def do_GET(self):  # pylint: disable=invalid-name
        self.server.asked.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


def use(folder, text, script, *arguments):
    """Runs the script in the page of this text; returns the object `seen`."""
    with http.server.HTTPServer(("127.0.0.1", 0), _Listener) as server:
        server.asked = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ending = AFTER.replace("ASKED", f"http://127.0.0.1:{server.server_port}/asked")
        used = pathlib.Path(folder) / "used.html"
        used.write_text(text.replace("</body>", BEFORE + script + ending + "</body>"))
        done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu",
                               f"--user-data-dir={pathlib.Path(folder) / 'browser'}", *arguments,
                               "--virtual-time-budget=3000", "--dump-dom", used.as_uri()],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              check=False, timeout=SECONDS_MOST)
        server.shutdown()
    found = re.search(r"SEEN(\{.*\})NEES", done.stdout)
    if not found:
        raise AssertionError(f"the page did not come to its end: {done.stdout[-500:]}")
    return {**json.loads(html.unescape(found.group(1))), "asked": server.asked}


class PageCase(unittest.TestCase):
    """Checks of every page."""

    def check_page(self, text, seen):
        self.assertLess(len(text), 2 << 20)
        self.assertNotRegex(text, r"https?://|@import|<link [^>]*href=.(?!data:)")
        self.assertEqual((seen["requests"], seen["asked"]), ([], []))
        self.assertGreaterEqual(seen["violations"], 2)
        self.assertFalse(seen["too_wide"])
        self.assertNotIn("error", seen)
