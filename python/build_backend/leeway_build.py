"""Builds the package with Python's own library alone, so that `pip install ./python` needs no network (PEP 517, PEP 660).

A wheel with programs in leeway/bin (packaging/wheel) is for Linux with this glibc or a newer one; else it is for any system.
"""

import base64
import hashlib
import os
import platform
import re
import tarfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _project():
    """Name, version and METADATA, from pyproject.toml: lines `key = "value"` and `key = ["value", ...]`."""
    with open(os.path.join(ROOT, "pyproject.toml"), encoding="utf-8") as file:
        tables = dict(re.findall(r"^\[([\w.-]+)\]\n(.*?)(?=^\[|\Z)", file.read(), re.DOTALL | re.MULTILINE))
    text = dict(re.findall(r'^([\w-]+) = "(.*)"$', tables["project"], re.MULTILINE))
    lists = {key: re.findall(r'"([^"]*)"', values) for table in ("project", "project.optional-dependencies")
             for key, values in re.findall(r"^([\w-]+) = \[(.*)\]$", tables[table], re.MULTILINE)}
    with open(os.path.join(ROOT, text["readme"]), encoding="utf-8") as file:
        readme = file.read()
    lines = ["Metadata-Version: 2.1", f"Name: {text['name']}", f"Version: {text['version']}", f"Summary: {text['description']}",
             "License: " + re.search(r'license = \{ text = "(.*)" \}', tables["project"])[1],
             f"Requires-Python: {text['requires-python']}"]
    lines += [f"Requires-Dist: {name}" for name in lists.pop("dependencies")]
    for extra, names in lists.items():
        lines += [f"Provides-Extra: {extra}", *(f"Requires-Dist: {name}; extra == '{extra}'" for name in names)]
    lines += ["Description-Content-Type: text/markdown", "", readme]
    return text["name"], text["version"], "\n".join(lines)


def _files():
    """Paths of the package's files, from ROOT."""
    for folder, folders, names in os.walk(os.path.join(ROOT, "leeway")):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        for name in sorted(names):
            yield os.path.relpath(os.path.join(folder, name), ROOT)


def _tag():
    if not os.path.isdir(os.path.join(ROOT, "leeway", "bin")):
        return "py3-none-any"
    return f"py3-none-manylinux_{platform.libc_ver()[1].replace('.', '_')}_{platform.machine()}"


def _wheel(directory, contents, tag):
    """Writes a wheel of (path, bytes, mode) and returns its name."""
    name, version, metadata = _project()
    info = f"{name}-{version}.dist-info"
    about = f"Wheel-Version: 1.0\nGenerator: leeway_build\nRoot-Is-Purelib: {str(tag.endswith('any')).lower()}\nTag: {tag}\n"
    contents = [*contents, (f"{info}/METADATA", metadata.encode(), 0o644), (f"{info}/WHEEL", about.encode(), 0o644)]
    record = []
    file_name = f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(os.path.join(directory, file_name), "w", zipfile.ZIP_DEFLATED) as wheel:
        def add(path, data, mode):
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)

        for path, data, mode in contents:
            add(path, data, mode)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}\n")
        add(f"{info}/RECORD", "".join([*record, f"{info}/RECORD,,\n"]).encode(), 0o644)
    return file_name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    contents = []
    for path in _files():
        full = os.path.join(ROOT, path)
        with open(full, "rb") as file:
            contents.append((path.replace(os.sep, "/"), file.read(), 0o755 if os.access(full, os.X_OK) else 0o644))
    return _wheel(wheel_directory, contents, _tag())


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _wheel(wheel_directory, [("leeway.pth", (ROOT + "\n").encode(), 0o644)], "py3-none-any")


def build_sdist(sdist_directory, config_settings=None):
    name, version, metadata = _project()
    file_name = f"{name}-{version}.tar.gz"
    with tarfile.open(os.path.join(sdist_directory, file_name), "w:gz") as archive:
        for path in ("pyproject.toml", "README.md", "build_backend/leeway_build.py", *_files()):
            archive.add(os.path.join(ROOT, path), f"{name}-{version}/{path}")
    return file_name
