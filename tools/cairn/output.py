"""Checks the files of a command's options at its start, and writes output files."""

import os
import stat

from cairn.errors import UserError, os_sentence
from cairn.texts import ESCAPED


def check_writable(option, path):
    """Raises UserError when a file cannot be written. Creates and changes nothing."""
    folder = path.parent
    if path.is_dir():
        raise UserError(f"{option} {path}: it is a folder")
    if not folder.is_dir():
        raise UserError(f"{option} {path}: there is no folder {folder}")
    if path.exists() and not os.access(path, os.W_OK):
        raise UserError(f"{option} {path}: it is not writable")
    if not path.exists() and not os.access(folder, os.W_OK):
        raise UserError(f"{option} {path}: folder {folder} is not writable")


def check_regular(option, path):
    """Raises UserError unless the file is regular or new, so that it can be read back."""
    check_writable(option, path)
    if path.exists() and not path.is_file():
        raise UserError(f"{option} {path}: not a regular file")


def check_readable(option, path):
    """Raises UserError when a file, a pipe or a device cannot be read."""
    if path.is_dir():
        raise UserError(f"{option} {path}: it is a folder")
    if not path.exists():
        raise UserError(f"{option} {path}: no such file")
    if not os.access(path, os.R_OK):
        raise UserError(f"{option} {path}: it is not readable")


def check_folders(option, paths):
    """Raises UserError when one of the paths is not a folder."""
    for path in paths or ():
        if not path.is_dir():
            raise UserError(f"{option} {path}: no such folder")


def replace(path, fill):
    """Replaces a file atomically, even when the disk is full: `fill` writes another file, whose
    path it receives, which then replaces it. A pipe or a device is written directly."""
    if path.exists() and not path.is_file():
        fill(path)
        return
    path = path.resolve()  # a symbolic link is kept
    temporary = path.with_name(f".{path.name}.new")
    try:
        fill(temporary)
        if path.exists():
            os.chmod(temporary, stat.S_IMODE(path.stat().st_mode))
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write(option, path, text):
    """Writes a text file. UserError names the option when the system refuses."""
    try:
        replace(path, lambda new: new.write_text(text, encoding="utf-8", errors=ESCAPED))
    except OSError as error:
        error.filename = None
        raise UserError(f"{option} {path}: {os_sentence(error)}") from error
