// Random programs of all collectives on one rank of a job that an MPI has started, with that MPI as backend.
// To be run under mpirun; every result is compared with the scalar definition (tests/conformance).
// RUEDA_TEST_SEED: the first seed; with an even one, collectives are cut into pieces of 4000 bytes.
// RUEDA_TEST_PROGRAMS: how many programs, 2 by default. RUEDA_TEST_RANKS: how many ranks mpirun starts.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

#include "../conformance/random_side.h"

namespace rueda::runtime {
namespace {

using namespace random_program;

uint64_t number_of(const char* name, uint64_t fallback) {
  const char* const text = std::getenv(name);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

// 16-bit products are rounded at each hop, so they depend on the order.
void without_long_products(Program& program) {
  for (Block& block : program.blocks)
    for (Item& item : block.items)
      if (is_16bit_float(item.dtype) && item.op == ReduceOp::kProduct) item.op = ReduceOp::kMax;
}

// Of one MPI: it is initialised once, and serves one engine after the other.
RendezvousPoint& point() {
  static auto* const kept = new RendezvousPoint;
  return *kept;
}

Result<Session> start(const Program& program, bool cuts) {
  InitOptions options;
  options.process_sets = {program.sets[1]};
  return bootstrap(point(), std::move(options), [cuts](const char* name) -> const char* {
    const std::string_view wanted = name;
    if (wanted == "RUEDA_CPU_OPERATIONS") return "mpi";
    if (wanted == "RUEDA_DYNAMIC_PROCESS_SETS") return "1";
    if (wanted == "RUEDA_MPI_CHUNK_BYTES" && cuts) return "4000";
    return std::getenv(name);
  });
}

void run_one_program(uint64_t seed, Rank size) {
  Program program(seed, size, true);
  without_long_products(program);
  const Setup setup{.seed = seed, .hosts = std::string(static_cast<size_t>(size), 'a'), .is_exact = true};
  Result<Session> session = start(program, seed % 2 == 0);
  ASSERT_TRUE(session.is_ok()) << "seed " << seed << ": " << session.status().to_string();
  ASSERT_EQ(session.value().size(), size);
  ASSERT_EQ(session.value().backends->all().front()->name(), "mpi");
  const Rank me = session.value().me;
  const std::shared_ptr<Engine> engine = Engine::start(std::move(session).value()).value();
  const Outcome outcome = Side(*engine, me, setup, nullptr).run(program);
  EXPECT_GT(outcome.tensors, 0);
  EXPECT_EQ(outcome.planned, 0);  // MPI takes no call back
  EXPECT_STREQ(engine->counters().algorithm.load(), "mpi");
  if (me == 0) std::cout << "seed " << seed << ": " << outcome.tensors << " results\n";
  engine->shutdown();
}

TEST(MpiPrograms, give_the_documented_values) {
  const uint64_t first = number_of("RUEDA_TEST_SEED", 1);
  const uint64_t programs = number_of("RUEDA_TEST_PROGRAMS", 2);
  const auto size = static_cast<Rank>(number_of("RUEDA_TEST_RANKS", 0));
  ASSERT_GT(size, 1) << "RUEDA_TEST_RANKS says how many ranks mpirun starts";
  for (uint64_t i = 0; i < programs && !HasFailure(); ++i) run_one_program(first + i, size);
  if (!HasFailure() && point().mpi()) point().mpi()->finish();
}

}  // namespace
}  // namespace rueda::runtime
