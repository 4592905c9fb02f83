// The subcommands of `rueda`. Each takes the arguments after its name and returns the exit status.
#pragma once

#include <string>
#include <vector>

namespace rueda::cli {

inline constexpr int kUsageError = 2;

using Arguments = std::vector<std::string>;

int agent_command(const Arguments& arguments);
int run_command(const Arguments& arguments);
int check_build_command(const Arguments& arguments);
int env_command(const Arguments& arguments);
int bench_command(const Arguments& arguments);
int doctor_command(const Arguments& arguments);
int preflight_command(const Arguments& arguments);
int timeline_command(const Arguments& arguments);
int simulate_command(const Arguments& arguments);
int status_command(const Arguments& arguments);
int stacks_command(const Arguments& arguments);

// Writes to stdout. main() tells a failure; fmt::print would throw.
void put(const std::string& text);

// Absolute path of this program.
std::string own_path();

}  // namespace rueda::cli
