"""What the errors of object stores mean: from the operating system's and obstore's to ours."""

from __future__ import annotations

import errno
import re

from agent_runtime_storage.contract.errors import ObjectsUnavailable, StoreError, StoreFull

_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_QUERY = re.compile(r"\?\S+")

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM)
_CURES: dict[int, str] = {
    **dict.fromkeys(_FORBIDDEN, "Give the process write permission on the folder."),
    errno.EROFS: "Choose a folder on a file system that can be written.",
    errno.ENOTDIR: "Choose a path that is a folder, and lies in one.",
    errno.ENOENT: "Create the folder that it is to lie in, or choose another path.",
}
_ACCESS = (
    "Check the credentials in the provider's variables, such as AWS_ACCESS_KEY_ID, and that they "
    "may read, write, list and delete there."
)
_REACH = "Check that the store can be reached and that the bucket is there, then try again."


def store_is_missing(error: Exception) -> bool:
    """Return whether it is the whole bucket that is not there, not an object in it."""
    code = _CODE.search(str(error))
    return code is not None and code[1] in ("NoSuchBucket", "ContainerNotFound")


def map_object_error(error: Exception, what: str, *, cure: str = "") -> StoreError:
    """Return our error for one of a folder or of obstore, without what it must not show.

    Args:
        cure: what to do if the error itself tells nothing.
    """
    number = os_number(error)
    reason = _reason(error)
    if number in _FULL:
        return StoreFull(f"{what}: {reason}.", cure="Free some space there, then try again.")
    if isinstance(error, TimeoutError):
        return ObjectsUnavailable(f"{what}: no answer within the deadline.", cure=_REACH)
    if number in _CURES:
        return ObjectsUnavailable(f"{what}: {reason}.", cure=_CURES[number])
    if type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError"):
        return ObjectsUnavailable(f"{what}: {reason}.", cure=_ACCESS)
    if type(error).__name__ == "UnknownConfigurationKeyError" or isinstance(error, ValueError):
        return ObjectsUnavailable(f"{what}: {reason}.", cure="Correct the object store's URL.")
    return ObjectsUnavailable(f"{what}: {reason}.", cure=cure or _REACH)


def os_number(error: Exception) -> int | None:
    """Return the operating system's number of an error, also of one that obstore wraps."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    found = _OS_ERROR.findall(str(error).partition("\n")[0])
    return int(found[-1]) if found else None


def _reason(error: Exception) -> str:
    # The rest is a dump of the request.  The address of one may carry a signature, and the answer
    # of a bucket repeats the key's name.
    text = str(error)
    line = _QUERY.sub("?***", text.partition("\n")[0].partition("<")[0]).strip(" :")
    code = _CODE.search(text)
    return f"{line} ({code[1]})" if code else line
