"""Files that a command writes at its end: refused at its start where they cannot be written."""

import os
import stat

from cairn.errors import UserError, os_sentence


def check_writable(option, path):
    """Raises UserError when a file cannot be written; creates and changes nothing."""
    folder = path.parent
    if path.is_dir():
        raise UserError(f"{option} {path}: is a folder")
    if not folder.is_dir():
        raise UserError(f"{option} {path}: there is no folder {folder}")
    if path.exists() and not os.access(path, os.W_OK):
        raise UserError(f"{option} {path}: may not be written")
    if not path.exists() and not os.access(folder, os.W_OK):
        raise UserError(f"{option} {path}: nothing may be written to {folder}")


def replace(path, fill):
    """A file is there whole or as it was before, even when the disk is full: `fill` writes another
    one, whose path it gets, that then takes its place."""
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
    """Writes a text file; UserError names the option when the system refuses."""
    try:
        path = path.resolve()  # a symbolic link stays one
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")  # a pipe or a device
        else:
            replace(path, lambda new: new.write_text(text, encoding="utf-8"))
    except OSError as error:
        error.filename = None
        raise UserError(f"{option} {path}: {os_sentence(error)}") from error
