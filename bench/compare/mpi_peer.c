/* Allreduce of an MPI library, measured as `rueda bench` measures: input rewritten, barrier, call in place,
 * every result checked. Each rank writes lines to OUT.RANK: "LABEL START END" (nanoseconds of
 * CLOCK_MONOTONIC).
 *
 *   mpi_peer OUT BYTES:CALLS...          one tensor
 *   mpi_peer OUT burst:FILE:CALLS        FILE: one count of elements in each line; labels "each" and "flat"
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kWarmUps = 4, kMostTensors = 4096 };

static int rank_, size_;
static FILE* out_;

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void fail(const char* why) {
  fprintf(stderr, "mpi_peer: rank %d: %s\n", rank_, why);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void prepare(float* values, int64_t count, int64_t call) {
  for (int64_t i = 0; i < count; ++i) values[i] = (float)((i + call) % 64 + rank_);
}

static void check(const float* values, int64_t count, int64_t call) {
  for (int64_t i = 0; i < count; ++i)
    if (values[i] != (float)((i + call) % 64 * size_ + size_ * (size_ - 1) / 2)) fail("a sum is wrong");
}

/* Sums counts[0..tensors) in place, one after the other. */
static void measure(const char* label, const int64_t* counts, int tensors, int calls) {
  int64_t total = 0;
  for (int t = 0; t < tensors; ++t) total += counts[t];
  float* values = NULL;
  if (posix_memalign((void**)&values, 4096, (size_t)(total * 4 + 4096)) != 0) fail("cannot allocate memory");
  for (int call = 0; call < kWarmUps + calls; ++call) {
    prepare(values, total, call);
    MPI_Barrier(MPI_COMM_WORLD);
    const int64_t start = now();
    float* at = values;
    for (int t = 0; t < tensors; at += counts[t++])
      MPI_Allreduce(MPI_IN_PLACE, at, (int)counts[t], MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    const int64_t end = now();
    MPI_Barrier(MPI_COMM_WORLD);  // the check would take the cores from ranks that have not finished
    check(values, total, call);
    if (call >= kWarmUps) fprintf(out_, "%s %lld %lld\n", label, (long long)start, (long long)end);
  }
  free(values);
}

static void measure_burst(char* spec) {
  static int64_t counts[kMostTensors];
  char* colon = strrchr(spec, ':');
  const int calls = atoi(colon + 1);
  *colon = '\0';
  FILE* file = fopen(spec, "r");
  if (file == NULL) fail("cannot read the list of counts");
  int tensors = 0;
  long long count = 0;
  int64_t total = 0;
  while (tensors < kMostTensors && fscanf(file, "%lld", &count) == 1) {
    counts[tensors++] = count;
    total += count;
  }
  fclose(file);
  measure("each", counts, tensors, calls);
  measure("flat", &total, 1, calls);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  char path[4096];
  snprintf(path, sizeof path, "%s.%d", argv[1], rank_);
  out_ = fopen(path, "w");
  if (out_ == NULL) fail("cannot write the times");
  for (int i = 2; i < argc; ++i) {
    if (strncmp(argv[i], "burst:", 6) == 0) {
      measure_burst(argv[i] + 6);
      continue;
    }
    const int64_t bytes = atoll(argv[i]), count = bytes / 4;
    char label[32];
    snprintf(label, sizeof label, "%lld", (long long)bytes);
    measure(label, &count, 1, atoi(strchr(argv[i], ':') + 1));
  }
  fclose(out_);
  MPI_Finalize();
  return 0;
}
