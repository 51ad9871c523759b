"""Keep the terminal's cursor where resizing the window cannot move it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prompt_toolkit.application import get_app
from prompt_toolkit.data_structures import Point
from prompt_toolkit.layout.containers import Container
from prompt_toolkit.layout.screen import Char

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyBindingsBase
    from prompt_toolkit.layout.dimension import Dimension
    from prompt_toolkit.layout.mouse_handlers import MouseHandlers
    from prompt_toolkit.layout.screen import Screen, WritePosition


class CursorFirst(Container):
    """A container whose cursor rests at its beginning; where one types, a block is painted.

    A terminal that becomes narrower wraps the rows above its cursor again, and nobody can tell
    how many they are then.  So there must be none that is to be erased.
    """

    def __init__(self, inner: Container) -> None:
        self._inner = inner

    def reset(self) -> None:
        """Reset the state of the container."""
        self._inner.reset()

    def preferred_width(self, max_available_width: int) -> Dimension:
        """Return the width that the container would like to have."""
        return self._inner.preferred_width(max_available_width)

    def preferred_height(self, width: int, max_available_height: int) -> Dimension:
        """Return the height that the container would like to have."""
        return self._inner.preferred_height(width, max_available_height)

    def write_to_screen(
        self,
        screen: Screen,
        mouse_handlers: MouseHandlers,
        write_position: WritePosition,
        parent_style: str,
        erase_bg: bool,
        z_index: int | None,
    ) -> None:
        """Write the container to the screen."""
        self._inner.write_to_screen(
            screen, mouse_handlers, write_position, parent_style, erase_bg, z_index
        )
        # Afterwards, since menus open where the cursor is.
        screen.draw_all_floats()
        window = get_app().layout.current_window
        if get_app().is_done:
            return
        at = screen.get_cursor_position(window)
        row = screen.data_buffer[at.y]
        row[at.x] = Char(row[at.x].char, f"{row[at.x].style} reverse")
        screen.set_cursor_position(window, Point(0, 0))
        screen.show_cursor = False

    def get_children(self) -> list[Container]:
        """Return the containers in this one."""
        return [self._inner]

    def get_key_bindings(self) -> KeyBindingsBase | None:
        """Return the key bindings of the container."""
        return self._inner.get_key_bindings()
