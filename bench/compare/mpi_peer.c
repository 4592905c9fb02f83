/* Collectives of an MPI library, measured as `rueda bench` measures: input rewritten, barrier, call, every
 * result checked. Allreduce and broadcast work in place. Each rank writes lines to OUT.RANK:
 * "LABEL START END" (nanoseconds of CLOCK_MONOTONIC).
 *
 *   mpi_peer OUT BYTES:CALLS...          allreduce of one tensor
 *   mpi_peer OUT KIND:BYTES:CALLS...     allgather, broadcast, reducescatter or alltoall. BYTES is the output
 *                                        of an allgather, otherwise the input of a rank
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

static float expected(const char* kind, int64_t share, int64_t at, int64_t call) {
  if (strcmp(kind, "broadcast") == 0) return (float)((at + call) % 64);
  if (strcmp(kind, "reducescatter") == 0)
    return (float)((rank_ * share + at + call) % 64 * size_ + size_ * (size_ - 1) / 2);
  const int64_t from = at / share, place = at % share;
  const int64_t first = strcmp(kind, "alltoall") == 0 ? rank_ * share : 0;
  return (float)((first + place + call) % 64 + from);
}

static void run(const char* kind, float* in, float* out, int count, int share) {
  if (strcmp(kind, "allgather") == 0)
    MPI_Allgather(in, share, MPI_FLOAT, out, share, MPI_FLOAT, MPI_COMM_WORLD);
  else if (strcmp(kind, "broadcast") == 0)
    MPI_Bcast(in, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
  else if (strcmp(kind, "reducescatter") == 0)
    MPI_Reduce_scatter_block(in, out, share, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  else if (strcmp(kind, "alltoall") == 0)
    MPI_Alltoall(in, share, MPI_FLOAT, out, share, MPI_FLOAT, MPI_COMM_WORLD);
  else
    fail("unknown collective");
}

static void measure_kind(const char* kind, int64_t bytes, int calls) {
  const int is_broadcast = strcmp(kind, "broadcast") == 0;
  const int64_t share = (bytes / 4 + size_ - 1) / size_, count = is_broadcast ? bytes / 4 : share * size_;
  const int64_t given = strcmp(kind, "allgather") == 0 ? share : count;
  const int64_t taken = strcmp(kind, "reducescatter") == 0 ? share : count;
  float *in = NULL, *out = NULL;
  if (posix_memalign((void**)&in, 4096, (size_t)(given * 4 + 4096)) != 0 ||
      posix_memalign((void**)&out, 4096, (size_t)(taken * 4 + 4096)) != 0)
    fail("cannot allocate memory");
  const float* result = is_broadcast ? in : out;
  for (int call = 0; call < kWarmUps + calls; ++call) {
    prepare(in, given, call);
    MPI_Barrier(MPI_COMM_WORLD);
    const int64_t start = now();
    run(kind, in, out, (int)count, (int)share);
    const int64_t end = now();
    MPI_Barrier(MPI_COMM_WORLD);
    for (int64_t i = 0; i < taken; ++i)
      if (result[i] != expected(kind, share, i, call)) fail("a result is wrong");
    if (call < kWarmUps) continue;
    fprintf(out_, "%lld %lld %lld\n", (long long)bytes, (long long)start, (long long)end);
  }
  free(in);
  free(out);
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
    char kind[16] = "";
    long long of_kind = 0;
    int calls = 0;
    if (sscanf(argv[i], "%15[a-z]:%lld:%d", kind, &of_kind, &calls) == 3) {
      measure_kind(kind, of_kind, calls);
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
