"""Runs a script of an elastic job as it stands: `killed_at_commit.py UID COMMIT SCRIPT`.

The process that the launcher calls UID kills itself when it has made so many commits. The others say as JSON
where they began and ended. A kill from outside would have to find a moment between the imports and the end.
"""

import json
import os
import runpy
import signal
import sys

from rueda.elastic import membership, state

UID = os.environ["RUEDA_ELASTIC_UID"]


def say(what, **more):
    print(json.dumps({"what": what, "uid": UID, "pid": os.getpid(), **more}), flush=True)


def kill_after(commits):
    made = state.State.commit

    def commit(self):
        made(self)
        if self._commit == commits:
            os.kill(os.getpid(), signal.SIGKILL)

    state.State.commit = commit


doomed, commits, script = sys.argv[1:]
if doomed == UID:
    kill_after(int(commits))
say("begin")
runpy.run_path(script, run_name="__main__")
view = membership.last_view()
say("end", view=view and [view.number, view.size])
