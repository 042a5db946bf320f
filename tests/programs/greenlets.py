"""Launches made in greenlets: stacks of their own that take turns in one thread. Needs the greenlet package."""

from greenlet import getcurrent, greenlet

SITUATIONS = {}


def situation(run):
    SITUATIONS[run.__name__] = run
    return run


@situation
def greenlet_started(launch):
    def begun():
        launch()

    def starter():
        greenlet(begun).switch()

    starter()


@situation
def greenlet_resumed(launch):
    def begun():
        getcurrent().parent.switch()
        launch()

    def starter(n):
        if n:
            return starter(n - 1)
        made = greenlet(begun)
        made.switch()
        return made

    made = starter(20)
    # From another depth than it was left at.
    sorted([1], key=lambda n: made.switch())


@situation
def greenlet_resumed_from_c(launch):
    def begun():
        def items():
            getcurrent().parent.switch()
            yield launch()

        list(items())

    made = greenlet(begun)
    made.switch()
    made.switch()


@situation
def greenlets_under_a_hub(launch):
    """As gevent does it: one greenlet starts and resumes all others."""

    def worker(n):
        for _ in range(3):
            hub.switch()
        if n == 2:
            launch()

    def run():
        workers = [greenlet(worker, hub) for _ in range(4)]
        for n, made in enumerate(workers):
            made.switch(n)
        while any(not made.dead for made in workers):
            for made in workers:
                if not made.dead:
                    made.switch()

    hub = greenlet(run)
    hub.switch()


@situation
def greenlet_in_a_greenlet(launch):
    def inner():
        launch()

    def outer():
        greenlet(inner).switch()

    greenlet(outer).switch()


@situation
def after_a_greenlet(launch):
    """The thread's own stack is whole again."""
    greenlet(lambda: None).switch()
    launch()
