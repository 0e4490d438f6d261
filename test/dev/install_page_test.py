"""The files in docs/INSTALL.md that cannot be run here: the Dockerfile and the Kubernetes manifest
have the syntax of their tools, and their parts match. dev/run_docs.py runs the other blocks."""

import json
import pathlib
import re
import subprocess
import unittest

import dev_path  # noqa: F401
from doc_blocks import blocks

try:
    import yaml
except ImportError:
    yaml = None

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "INSTALL.md"
INSTRUCTIONS = {"FROM", "COPY", "ADD", "RUN", "ENV", "CMD", "ENTRYPOINT", "WORKDIR", "USER", "ARG",
                "EXPOSE", "LABEL", "VOLUME", "HEALTHCHECK", "STOPSIGNAL", "SHELL"}


def shown(language):
    found = [block.text for block in blocks(PAGE.read_text()) if block.language == language]
    assert found, f"INSTALL.md has no block of {language}"
    return found


def instructions(text):
    """(instruction, the rest) of a Dockerfile."""
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if line.strip() and not line.startswith("#"):
            yield line.split(None, 1)


class DockerTest(unittest.TestCase):
    def test_the_dockerfile(self):
        for text in shown("dockerfile"):
            lines = list(instructions(text))
            self.assertEqual(lines[0][0], "FROM")
            self.assertRegex(lines[0][1], r"^[\w./-]+:[\w.-]+( AS \w+)?$")
            for word, rest in lines:
                self.assertIn(word, INSTRUCTIONS)
                if word in ("CMD", "ENTRYPOINT"):
                    self.assertIsInstance(json.loads(rest), list)
                if word == "RUN":
                    subprocess.run(["sh", "-n", "-c", rest], check=True)
                    if "apt-get install" in rest:
                        self.assertIn("apt-get update", rest)
                if word == "ENV":
                    self.assertRegex(rest, r"^(\w+=\S+\s*)+$")
            # The library is there before the variable makes every program look for it.
            words = [word for word, _ in lines]
            self.assertLess(words.index("RUN"), words.index("ENV"))


@unittest.skipUnless(yaml, "no PyYAML")
class KubernetesTest(unittest.TestCase):
    def test_the_manifest(self):
        for text in shown("yaml"):
            manifest = yaml.safe_load(text)
            self.assertEqual((manifest["apiVersion"], manifest["kind"]), ("apps/v1", "Deployment"))
            template = manifest["spec"]["template"]
            labels = template["metadata"]["labels"]
            self.assertEqual(manifest["spec"]["selector"]["matchLabels"], labels)
            pod = template["spec"]
            volumes = {volume["name"] for volume in pod["volumes"]}
            for container in pod["initContainers"] + pod["containers"]:
                self.assertRegex(container["image"], r"^[\w./-]+:[\w.-]+$")
                for mount in container["volumeMounts"]:
                    self.assertIn(mount["name"], volumes)

    def test_the_library_lies_where_it_is_preloaded_from(self):
        pod = yaml.safe_load(shown("yaml")[0])["spec"]["template"]["spec"]
        copied = pod["initContainers"][0]["command"][-1]
        variables = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}
        folder, name = variables["LD_PRELOAD"].rsplit("/", 1)
        mounts = pod["containers"][0]["volumeMounts"]
        self.assertIn(folder, [mount["mountPath"] for mount in mounts])
        self.assertIn(folder, copied)
        self.assertIn(name, copied)
        self.assertRegex(variables["CAIRN_OPTIONS"], r"^(\w+:\w+,?)+$")


if __name__ == "__main__":
    unittest.main()
