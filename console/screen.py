"""The live view: Textual, which is imported here alone. Names that clients chose are text here, never markup.

What is asked of members runs in daemon threads, so that neither a key nor the end of the program waits for a member.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from commandline.amounts import printable
from commandline.program import INTERRUPTED, TERMINATED
from console.top import (
    COLUMNS,
    HEADS,
    WINDOWS,
    Page,
    Row,
    capacity_lines,
    cells,
    choose,
    heading,
    rows,
    warnings,
)

ROWS_SHOWN: Final = 500  # of the sorted; a filter finds the others
_FILTER_CHARACTERS_MAX: Final = 200
_WARNINGS_SHOWN: Final = 5
_STYLES: Final = {
    "quota": "bold red",
    "observed": "yellow",
    "broker": "magenta",
    "client": "cyan",
    "sluice": "blue",
    "over": "yellow",
}


class Verdict(ModalScreen[None]):
    """The screen of one client: the sentence that says why it waits, and its numbers."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,enter,q", "dismiss", "back")]
    CSS = """
    Verdict { align: center middle; }
    Verdict VerticalScroll { width: 90%; height: 90%; border: round $primary; padding: 0 1; background: $surface; }
    """

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.row = row
        self.text = Static("asking …", markup=False, id="verdict")

    def compose(self) -> ComposeResult:
        """Lay out the text, which scrolls if it is longer than the screen."""
        name = printable(self.row.client.client_id) or "(no client id)"
        with VerticalScroll() as scroll:
            scroll.border_title = Text(f"{name[:60]}  (Esc: back)").markup
            yield self.text

    def show(self, lines: Sequence[str]) -> None:
        """Replace the shown text by these lines."""
        self.text.update("\n".join(lines))


class Live(App[int]):
    """The terminal application of `sluice top`: a table of all clients, which is requested again and again.

    Args:
        ask: returns the page for a window in seconds; called in a thread, since it may take seconds.
        verdict: returns the lines that explain a client, given its user, its client id and the window in seconds.
        iterations: the number of pages after which it ends; 0 if it does not end by itself.
    """

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "end", "quit"),
        Binding("ctrl+c", "interrupt", "quit", show=False, priority=True),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("p", "pause", "pause"),
        Binding("w", "window", "window"),
        Binding("s", "sort", "sort by next"),
        Binding("r", "reverse", "reverse"),
        Binding("escape", "all", "all", show=False),
        *(
            Binding(str(number + 1), f"sort({name!r})", name, show=False)
            for number, name in enumerate(COLUMNS)
        ),
    ]
    CSS = """
    #heading { text-style: bold; height: 1; background: $primary-darken-2; }
    #warnings { color: $text-error; text-style: bold; }
    #clients { height: 1fr; }
    #state { color: $text-muted; height: 1; }
    #filter { display: none; height: 3; }
    #filter.open { display: block; }
    """

    def __init__(
        self,
        ask: Callable[[int], Page],
        verdict: Callable[[str, str, int], list[str]],
        *,
        window: int = 60,
        sort: str = "waits",
        text: str = "",
        seconds: float = 2.0,
        iterations: int = 0,
        several: bool = False,
    ) -> None:
        super().__init__(ansi_color=False)
        self._ask, self._verdict = ask, verdict
        self._seconds, self._iterations = seconds, iterations
        self._window, self._sort, self._text = window, sort, text
        self._several = several
        self._reverse = self._paused = False
        self._found: list[Row] = []
        self._page: Page | None = None
        self._shown: tuple[Row, ...] = ()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._loop_of_signals: asyncio.AbstractEventLoop | None = None

    def compose(self) -> ComposeResult:
        """Lay out heading, warnings, capacities, table, filter and keys."""
        yield Static("asking …", id="heading", markup=False)
        yield Static("", id="warnings", markup=False)
        yield Static("", id="capacities", markup=False)
        yield DataTable[Text](cursor_type="row", zebra_stripes=True, id="clients")
        yield Static("", id="state", markup=False)
        yield Input(self._text, placeholder="part of a client id or user", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        """Start the thread that asks for pages, and end the application on SIGTERM."""
        table = self._table
        table.add_columns(*(HEADS if self._several else HEADS[:-1]))
        table.focus()
        if threading.current_thread() is threading.main_thread():
            self._loop_of_signals = asyncio.get_running_loop()
            self._loop_of_signals.add_signal_handler(signal.SIGTERM, self.exit, TERMINATED)
        threading.Thread(target=self._watch, name="top", daemon=True).start()

    def on_unmount(self) -> None:
        """End the thread, and restore the handling of SIGTERM."""
        if self._loop_of_signals is not None:
            self._loop_of_signals.remove_signal_handler(signal.SIGTERM)
        self._ended.set()
        self._wake.set()

    @property
    def _table(self) -> DataTable[Text]:
        table: DataTable[Text] = self.query_one("#clients", DataTable)
        return table

    def _watch(self) -> None:
        """Ask for pages and show each; runs in a thread until the application ends."""
        number = 0
        while not self._ended.is_set():
            self._wake.clear()
            if not self._paused or self._page is None or self._page.window != self._window:
                page = self._ask(self._window)
                found = rows(page)
                number += 1
                if not self._call(partial(self._show, page, found)):
                    return
                if number == self._iterations:
                    self._call(partial(self.exit, 0))
                    return
                self._ask_verdict()
            self._wake.wait(self._seconds)

    def _call(self, shown: Callable[[], object]) -> bool:
        """Run a function in the application's own thread; False if the application has ended."""
        try:
            self.call_from_thread(shown)
        except (RuntimeError, asyncio.CancelledError):
            return False
        return True

    def _ask_verdict(self) -> None:
        screen = self.screen_stack[-1] if self.screen_stack else None
        if isinstance(screen, Verdict):
            self._verdict_of(screen)

    def _verdict_of(self, screen: Verdict) -> None:
        lines = self._verdict(*screen.row.key, self._window)
        self._call(lambda: screen.show(lines) if screen.is_attached else None)

    def _show(self, page: Page, found: list[Row]) -> None:
        self._page, self._found = page, found
        self._draw()

    def _draw(self) -> None:
        """Show the page; the cursor stays at the client where it was."""
        page = self._page
        if page is None or not self.is_running:
            return
        said = list(warnings(page))
        more = [f"and {len(said) - _WARNINGS_SHOWN} more"] if len(said) > _WARNINGS_SHOWN else []
        self.query_one("#heading", Static).update(heading(page) + ("  PAUSED" if self._paused else ""))
        self.query_one("#warnings", Static).update("\n".join([*said[:_WARNINGS_SHOWN], *more]))
        self.query_one("#warnings").display = bool(said)
        divided = list(capacity_lines(page))
        self.query_one("#capacities", Static).update("\n".join(divided))
        self.query_one("#capacities").display = bool(divided)
        chosen = choose(self._found, self._sort, self._text, reverse=self._reverse, at_most=ROWS_SHOWN)
        self._fill(chosen.rows)
        filtered = f" with {printable(self._text)!r}" if self._text else ""
        self.query_one("#state", Static).update(
            f"{len(chosen.rows)} of {chosen.matching} clients{filtered}, by {self._sort}"
            f"{' reversed' if self._reverse else ''} (s, 1 to {len(COLUMNS)}: by another; Enter: why)"
        )

    def _fill(self, shown: tuple[Row, ...]) -> None:
        table = self._table
        at, top = table.cursor_row, table.scroll_y
        key = self._shown[at].key if at < len(self._shown) else None
        table.clear()
        for row in shown:
            style = _STYLES.get(row.kind, "")
            # Text, since a string would be read as markup.
            table.add_row(
                *(
                    Text(cell, style=style if number in (2, 3) else "", no_wrap=True)
                    for number, cell in enumerate(cells(row, self._several))
                )
            )
        self._shown = shown
        same = next((number for number, row in enumerate(shown) if row.key == key), None)
        if same is not None:
            table.move_cursor(row=same, animate=False, scroll=False)
            table.scroll_to(y=top, animate=False, force=True)

    def action_end(self) -> None:
        """End the application with exit code 0."""
        self.exit(0)

    def action_interrupt(self) -> None:
        """End the application with the exit code that a shell reports for Ctrl-C (130)."""
        self.exit(INTERRUPTED)

    def action_pause(self) -> None:
        """Stop asking for pages, or continue."""
        self._paused = not self._paused
        self._wake.set()
        self._draw()

    def action_window(self) -> None:
        """Switch to the next window: 10 s, a minute, 15 minutes."""
        known = list(WINDOWS)
        self._window = known[(known.index(self._window) + 1) % len(known)]
        self._wake.set()

    def action_sort(self, column: str = "") -> None:
        """Sort by a column, or by the next one if none is given; the same column again reverses the order."""
        if column == self._sort:
            self._reverse = not self._reverse
        else:
            self._sort = column or COLUMNS[(COLUMNS.index(self._sort) + 1) % len(COLUMNS)]
            self._reverse = False
        self._draw()

    def action_reverse(self) -> None:
        """Reverse the order of the rows."""
        self._reverse = not self._reverse
        self._draw()

    def action_filter(self) -> None:
        """Show the input for the filter."""
        box = self.query_one("#filter", Input)
        box.add_class("open")
        box.focus()

    def action_all(self) -> None:
        """Clear and hide the filter: all clients are shown."""
        self.query_one("#filter", Input).value = ""
        self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).remove_class("open")
        self._table.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the text is typed."""
        self._text = event.value[:_FILTER_CHARACTERS_MAX]
        self._draw()

    def on_input_submitted(self) -> None:
        """Keep the filter, and go back to the table."""
        self._close_filter()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by a column that is clicked."""
        self.action_sort(COLUMNS[event.column_index])

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the screen of the selected client."""
        if event.cursor_row < len(self._shown):
            screen = Verdict(self._shown[event.cursor_row])
            self.push_screen(screen)
            threading.Thread(target=self._verdict_of, args=(screen,), name="verdict", daemon=True).start()
