// The agent: one per host, started by the launcher directly or through ssh as `rueda agent`. It starts the
// ranks of its host, passes their output and endings on, and sees to it that nothing of them outlives the
// job.
//
// It is two processes. The *guardian* only waits: when the *worker* is killed, the guardian, being a
// subreaper, inherits whatever the worker had started and kills it. When the guardian is killed, the worker
// notices by its parent-death signal; when the launcher, ssh or the connection dies, by end of file on stdin
// or by missing pings. Ranks themselves die with the worker by their own parent-death signal.
#pragma once

#include <string>

namespace rueda::launch {

// The whole program; returns its exit status. release: version text, compared by the launcher.
int agent_main(const std::string& release);

}  // namespace rueda::launch
