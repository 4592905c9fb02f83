// Which rank failed first, what the user is told, and the exit status of the launcher. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "launch/ending.h"

namespace rueda::launch {

// The earliest failure that rueda did not cause itself, as an index into endings. If two failed at the same
// moment, the one that was killed by a signal: an exit code is more often the consequence of another failure.
std::optional<size_t> first_cause(std::span<const Ending> endings);

// The exit status of the job: that of the first cause, 128 + interrupt if the user stopped the job, or 0.
int job_exit_status(std::span<const Ending> endings, int interrupt);

// The text at the end of a failed job; "" if nothing failed. interrupt: the signal by which the user ended
// the job; 0 = none.
std::string failure_report(std::span<const Ending> endings, int interrupt);
// The same of an elastic job that rueda has ended for this reason. No rank is to blame.
std::string verdict_report(const std::string& verdict, std::span<const Ending> endings);

}  // namespace rueda::launch
