"""The demo without Spark, from its first producer to the reckoning."""

from __future__ import annotations

from .demo_group import Crew
from .demo_screen import screen_for, watch
from .demo_story import Finding, Story


def run(folder: str, producers: int, seconds: float, as_json: bool) -> list[Finding]:
    """Tell the story; no process is left behind, whatever happens."""
    story = Story(f"{folder}/log", producers, seconds)
    crew: Crew | None = None
    try:
        with screen_for(story, as_json) as screen:
            story.begin()
            watch(story, screen, story.under_way)
            story.start_clock()
            watch(story, screen, lambda: story.elapsed > seconds * 0.4)
            story.crash()
            watch(story, screen, lambda: story.elapsed > seconds * 0.55)
            story.restart()
            watch(story, screen, lambda: story.elapsed > seconds)
            story.end()
            crew = Crew(story)
            crew.begin()
            watch(story, screen, crew.shared)
            crew.kill()
            watch(story, screen, crew.taken_over)
            watch(story, screen, crew.done)
            crew.end()
        return [*story.reckon(), *crew.findings()]
    finally:
        story.stop()
        if crew is not None:
            crew.stop()
