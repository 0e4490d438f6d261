"""Files that a command writes at its end: refused at its start where they cannot be written."""

import os
import pathlib
import stat
import tempfile

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


def _replace(path, text):
    """A file is there whole or as it was before, whenever the disk is full."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", dir=path.parent,
                                     prefix=f".{path.name}.", delete=False) as file:
        temporary = pathlib.Path(file.name)
        try:
            file.write(text)
            file.flush()
            mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~_umask()
            os.chmod(temporary, mode)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink()
            raise


def _umask():
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def write(option, path, text):
    """Writes a text file; UserError names the option when the system refuses."""
    try:
        path = path.resolve()  # a symbolic link stays one
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")  # a pipe or a device
        else:
            _replace(path, text)
    except OSError as error:
        error.filename = None
        raise UserError(f"{option} {path}: {os_sentence(error)}") from error
