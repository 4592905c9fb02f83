// The time between two tries of a job.
#pragma once

#include "rueda/base/clock.h"

namespace rueda::launch {

// Waits for so long. Returns 0, or the signal that ended the wait: SIGINT, SIGTERM or SIGHUP, or SIGTERM
// where stdin is watched and has ended, because the calling program has. Ctrl-Z stops this process.
int pause_for(Nanos pause, bool is_stdin_watched);

}  // namespace rueda::launch
