// `rueda reap`: when the owner of a process ends, it kills the process and whatever that has started. Ranks
// that Spark and Ray start have such a reaper, and so have the commands of horovod.runner.
//
//     rueda reap below OUT ERR PROGRAM ARGUMENT...
//
// Starts the program below a guardian and a worker (guardian.h), its stdout and stderr the descriptors OUT
// and ERR. stdin comes from the owner: "T" asks the program to end (SIGTERM), "A" all that it has started as
// well, end of file kills them. stdout goes to the owner, in lines: "started PID", "ended STATUS" (as waitpid
// has it).
//
//     rueda reap beside PID NAME=value
//
// For a process that others have started. Returns when the reaper runs, which is then no child of the caller.
// After the end of PID two kinds of processes get SIGKILL: those whose first environment has NAME=value,
// which all programs that PID has started inherit, and those that it has forked, whose numbers it writes to
// stdin (8 bytes each, in the byte order of the machine). Processes whose parent is Ray's raylet are Ray's
// own and are left alone.
//
// Processes that have made a session for themselves are found as well. The socket of a killed rank is
// removed.
#pragma once

#include <string>
#include <vector>

namespace rueda::launch {

int reaper_main(const std::vector<std::string>& arguments);

}  // namespace rueda::launch
