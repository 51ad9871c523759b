"""Map errors of the operating system and of obstore to the store's errors."""

from __future__ import annotations

import errno
import re

from agent_runtime_storage.contract.errors import ObjectsUnavailable, StoreError, StoreFull

_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_QUERY = re.compile(r"\?\S+")

# The disk, the user's quota, and the limit of one file's size.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_CURES: dict[int, str] = {
    **dict.fromkeys(_FORBIDDEN, "Give the process write permission on the folder."),
    errno.EROFS: "Choose a folder on a file system that can be written.",
    errno.ENOTDIR: "Choose a path whose parents are folders.",
    errno.ENOENT: "Create the folder that contains it, or choose another path.",
}
_ACCESS = (
    "Check the credentials in the provider's variables, such as AWS_ACCESS_KEY_ID, and that they "
    "may read, write, list and delete there."
)
_REACH = "Check that the store can be reached and that the bucket is there, then try again."


def store_is_missing(error: Exception) -> bool:
    """Return whether the bucket is missing, not an object in it; obstore's class is the same."""
    code = _CODE.search(str(error))
    return code is not None and code[1] in ("NoSuchBucket", "ContainerNotFound")


def map_object_error(error: Exception, what: str, *, cure: str = "") -> StoreError:
    """Return the store's error for one of a folder or of obstore, without signatures and keys.

    Args:
        cure: used if the error itself suggests none.
    """
    number = os_number(error)
    reason = _reason(error)
    if number in _FULL:
        return StoreFull(f"{what}: {reason}.", cure="Free some space there, then try again.")
    if isinstance(error, TimeoutError):
        return ObjectsUnavailable(f"{what}: no answer within the deadline.", cure=_REACH)
    if number in _CURES:
        return ObjectsUnavailable(f"{what}: {reason}.", cure=_CURES[number])
    # By name: obstore is not loaded where no object store is used.
    if type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        return ObjectsUnavailable(f"{what}: {reason}.", cure=_ACCESS)
    if type(error).__name__ == "UnknownConfigurationKeyError" or isinstance(error, ValueError):
        return ObjectsUnavailable(f"{what}: {reason}.", cure="Correct the object store's URL.")
    return ObjectsUnavailable(f"{what}: {reason}.", cure=cure or _REACH)


def os_number(error: Exception) -> int | None:
    """Return the operating system's number of an error, also of one that obstore wraps."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    # obstore gives it as text only; the last one is the cause of those before.
    numbers = _OS_ERROR.findall(str(error).partition("\n")[0])
    return int(numbers[-1]) if numbers else None


def _reason(error: Exception) -> str:
    # The first line only: a dump of the request follows.  Its address may carry a signature, and
    # the bucket's answer (XML) repeats the name of the access key.
    text = str(error)
    line = _QUERY.sub("?***", text.partition("\n")[0].partition("<")[0]).strip(" :")
    code = _CODE.search(text)
    return f"{line} ({code[1]})" if code else line
