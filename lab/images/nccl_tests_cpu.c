/* A CPU stand-in for nccl-tests, for machines without a GPU.
 *
 * It answers to nccl-tests' names and flags, runs the MPI collective of that name on host memory,
 * and prints nccl-tests' table, so that what starts, reads and judges nccl-tests can be rehearsed
 * for real. Its times say nothing of a GPU, of NCCL or of EFA, and its header says so.
 *
 * One program under all names (all_reduce_perf, all_gather_perf, ...). The table is that of
 * nccl-tests 2.13 to 2.17.2; bus bandwidth as in its doc/PERFORMANCE.md (read 2026-11-20).
 */
#include <getopt.h>
#include <libgen.h>
#include <limits.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONFIGURATION "/etc/gpuctl-lab/nccl-tests-cpu.conf"
#define FAULTS "/etc/gpuctl-lab/faults.json" /* {"wrong-value-at": 1048576} */
#define ROOT 0
#define PRINT(...) do { if (rank == 0) printf(__VA_ARGS__); } while (0)
#define COMPLAIN(...) do { if (rank == 0) fprintf(stderr, __VA_ARGS__); } while (0)

static int rank, ranks, local_rank, local_ranks;

/* ---- What a run is asked for: nccl-tests' flags and their defaults. ---- */

static size_t min_bytes = 32 << 20, max_bytes = 32 << 20, step_bytes = 1 << 20;
static long step_factor = 1, gpus = 1, iterations = 20, warmups = 5, checks = 1;

static const char usage[] =
    "USAGE: %s\n"
    "\t[-b,--minbytes <min size in bytes>]\n"
    "\t[-e,--maxbytes <max size in bytes>]\n"
    "\t[-i,--stepbytes <increment size>]\n"
    "\t[-f,--stepfactor <increment factor>]\n"
    "\t[-g,--ngpus <1: a process of this CPU stand-in is one rank>]\n"
    "\t[-n,--iters <iteration count>]\n"
    "\t[-w,--warmup_iters <warmup iteration count>]\n"
    "\t[-c,--check <check iteration count, 0: data are not checked>]\n"
    "\t[-h,--help]\n";

/* Bytes of "8", "64K", "1.5G"; false for anything else. */
static bool parse_size(const char *text, size_t *bytes) {
  char *end;
  double value = strtod(text, &end);
  double unit = 1;
  switch (*end) {
    case 'G': case 'g': unit *= 1024; /* fall through */
    case 'M': case 'm': unit *= 1024; /* fall through */
    case 'K': case 'k': unit *= 1024; end++; break;
  }
  *bytes = (size_t)(value * unit);
  return end != text && *end == 0 && value >= 0;
}

static bool parse_count(const char *text, long least, long *count) {
  char *end;
  *count = strtol(text, &end, 0);
  return end != text && *end == 0 && *count >= least && *count <= INT_MAX;
}

/* 0 when the flags are good, else the exit status plus one; only rank 0 complains. */
static int parse_flags(int argc, char **argv) {
  static const struct option names[] = {
      {"minbytes", required_argument, 0, 'b'}, {"maxbytes", required_argument, 0, 'e'},
      {"stepbytes", required_argument, 0, 'i'}, {"stepfactor", required_argument, 0, 'f'},
      {"ngpus", required_argument, 0, 'g'}, {"iters", required_argument, 0, 'n'},
      {"warmup_iters", required_argument, 0, 'w'}, {"check", required_argument, 0, 'c'},
      {"help", no_argument, 0, 'h'}, {0, 0, 0, 0}};
  int flag;
  opterr = rank == 0;
  while ((flag = getopt_long(argc, argv, "b:e:i:f:g:n:w:c:h", names, NULL)) != -1) {
    bool good = true;
    switch (flag) {
      case 'b': good = parse_size(optarg, &min_bytes); break;
      case 'e': good = parse_size(optarg, &max_bytes); break;
      case 'i': good = parse_size(optarg, &step_bytes); break;
      case 'f': good = parse_count(optarg, 1, &step_factor); break;
      case 'g': good = parse_count(optarg, 1, &gpus); break;
      case 'n': good = parse_count(optarg, 1, &iterations); break;
      case 'w': good = parse_count(optarg, 0, &warmups); break;
      case 'c': good = parse_count(optarg, 0, &checks); break;
      case 'h':
        PRINT(usage, basename(argv[0]));
        return 1;
      default: good = false;
    }
    if (!good) {
      if (flag != '?') COMPLAIN("invalid value for -%c: %s\n", flag, optarg);
      COMPLAIN(usage, basename(argv[0]));
      return 2;
    }
  }
  if (optind < argc) {
    COMPLAIN("unexpected argument: %s\n", argv[optind]);
    return 2;
  }
  if (gpus != 1) {
    COMPLAIN("-g %ld: a process of this CPU stand-in is one rank; use -g 1\n", gpus);
    return 2;
  }
  if (min_bytes > max_bytes || (step_factor < 2 && step_bytes == 0)) {
    COMPLAIN("invalid sizes for 'minbytes' and 'maxbytes': %zu > %zu, or no step\n", min_bytes,
             max_bytes);
    return 2;
  }
  return 0;
}

/* ---- Data: whole numbers whose sums floats hold exactly, so that a wrong one is wrong. ---- */

static float value(int of_rank, size_t index) { return index % 251 + 256 * (of_rank % 31); }

static float sum(size_t index) {
  static double ranks_part = -1;
  if (ranks_part < 0)
    for (int r = (ranks_part = 0); r < ranks; r++) ranks_part += value(r, 0);
  return (float)(index % 251) * ranks + ranks_part;
}

/* ---- The collectives. `count` is nccl-tests' count: of one rank's part, where there are parts.
 * In place, `send` is NULL and the input lies in `recv`. ---- */

static void all_reduce(float *send, float *recv, int count) {
  MPI_Allreduce(send ? send : MPI_IN_PLACE, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static float all_reduce_expects(size_t i, size_t count) { (void)count; return sum(i); }

static void all_gather(float *send, float *recv, int count) {
  MPI_Allgather(send ? send : MPI_IN_PLACE, count, MPI_FLOAT, recv, count, MPI_FLOAT,
                MPI_COMM_WORLD);
}
static float all_gather_expects(size_t i, size_t count) { return value(i / count, i % count); }

static void alltoall(float *send, float *recv, int count) {
  MPI_Alltoall(send ? send : MPI_IN_PLACE, count, MPI_FLOAT, recv, count, MPI_FLOAT,
               MPI_COMM_WORLD);
}
static float alltoall_expects(size_t i, size_t count) {
  return value(i / count, rank * count + i % count);
}

static void broadcast(float *send, float *recv, int count) {
  if (send && rank == ROOT) memcpy(recv, send, count * sizeof(float));
  MPI_Bcast(recv, count, MPI_FLOAT, ROOT, MPI_COMM_WORLD);
}
static float broadcast_expects(size_t i, size_t count) { (void)count; return value(ROOT, i); }

static void gather(float *send, float *recv, int count) {
  void *own = send ? (void *)send : rank == ROOT ? MPI_IN_PLACE : recv + rank * (size_t)count;
  MPI_Gather(own, count, MPI_FLOAT, recv, count, MPI_FLOAT, ROOT, MPI_COMM_WORLD);
}

static void reduce(float *send, float *recv, int count) {
  void *own = send ? (void *)send : rank == ROOT ? MPI_IN_PLACE : recv;
  MPI_Reduce(own, recv, count, MPI_FLOAT, MPI_SUM, ROOT, MPI_COMM_WORLD);
}

static void reduce_scatter(float *send, float *recv, int count) {
  MPI_Reduce_scatter_block(send ? send : MPI_IN_PLACE, recv, count, MPI_FLOAT, MPI_SUM,
                           MPI_COMM_WORLD);
}
static float reduce_scatter_expects(size_t i, size_t count) { return sum(rank * count + i); }

static void scatter(float *send, float *recv, int count) {
  void *own = send || rank != ROOT ? (void *)recv : MPI_IN_PLACE;
  MPI_Scatter(send ? send : recv, count, MPI_FLOAT, own, count, MPI_FLOAT, ROOT, MPI_COMM_WORLD);
}
static float scatter_expects(size_t i, size_t count) { return value(ROOT, rank * count + i); }

static void sendrecv(float *send, float *recv, int count) {
  int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
  if (send)
    MPI_Sendrecv(send, count, MPI_FLOAT, to, 0, recv, count, MPI_FLOAT, from, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  else
    MPI_Sendrecv_replace(recv, count, MPI_FLOAT, to, 0, from, 0, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
}
static float sendrecv_expects(size_t i, size_t count) {
  (void)count;
  return value((rank + ranks - 1) % ranks, i);
}

typedef struct {
  const char *name;
  void (*run)(float *send, float *recv, int count);
  float (*expects)(size_t index, size_t count);
  bool in_parts, out_parts;  /* input, output: one part for each rank, or one alone */
  bool root_only;            /* only the root has a result */
  bool own_part;             /* in place, the input is the rank's own part of the output */
  bool in_place_unchecked;   /* nccl-tests prints N/A there */
  const char *operation;
  int root;
  double (*factor)(void);    /* bus bandwidth over algorithm bandwidth, doc/PERFORMANCE.md */
} Collective;

static double one(void) { return 1; }
static double others(void) { return (ranks - 1.0) / ranks; }
static double twice_others(void) { return 2 * others(); }

static const Collective collectives[] = {
    {"all_reduce_perf", all_reduce, all_reduce_expects, 0, 0, 0, 0, 0, "sum", -1, twice_others},
    {"all_gather_perf", all_gather, all_gather_expects, 0, 1, 0, 1, 0, "none", -1, others},
    {"alltoall_perf", alltoall, alltoall_expects, 1, 1, 0, 0, 1, "none", -1, others},
    {"broadcast_perf", broadcast, broadcast_expects, 0, 0, 0, 0, 0, "none", ROOT, one},
    {"gather_perf", gather, all_gather_expects, 0, 1, 1, 1, 0, "none", ROOT, others},
    {"reduce_perf", reduce, all_reduce_expects, 0, 0, 1, 0, 0, "sum", ROOT, one},
    {"reduce_scatter_perf", reduce_scatter, reduce_scatter_expects, 1, 0, 0, 0, 0, "sum", -1,
     others},
    {"scatter_perf", scatter, scatter_expects, 1, 0, 0, 0, 0, "none", ROOT, others},
    {"sendrecv_perf", sendrecv, sendrecv_expects, 0, 0, 0, 0, 1, "sum", -1, one},
};

static const Collective *find_collective(const char *name) {
  for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++)
    if (strcmp(collectives[i].name, name) == 0) return &collectives[i];
  return NULL;
}

/* ---- How large a buffer may be: the configured ceiling, or less where memory is short. ---- */

static size_t number_in(const char *file, const char *key, size_t missing) {
  char line[256], *at;
  size_t found = missing;
  FILE *stream = fopen(file, "r");
  while (stream && fgets(line, sizeof line, stream))
    if ((at = strstr(line, key)) && (at += strlen(key)))
      found = strtoull(at + strspn(at, " =:\""), NULL, 10);
  if (stream) fclose(stream);
  return found;
}

static size_t largest_buffer(void) {
  size_t ceiling = number_in(CONFIGURATION, "max_bytes", 4 << 20);
  /* Two buffers a rank, MPI's own copies, and as much again for everybody else. */
  size_t memory = number_in("/proc/meminfo", "MemAvailable", 1 << 20) * 1024 / local_ranks / 8;
  unsigned long long mine = memory < ceiling ? memory : ceiling, least;
  MPI_Allreduce(&mine, &least, 1, MPI_UNSIGNED_LONG_LONG, MPI_MIN, MPI_COMM_WORLD);
  return least < (size_t)INT_MAX * sizeof(float) ? least : (size_t)INT_MAX * sizeof(float);
}

/* ---- One size, measured and checked. ---- */

typedef struct {
  double microseconds, algbw, busbw;
  long long wrong; /* of all ranks; -1: not checked */
} Measurement;

static void fill(const Collective *c, float *input, size_t count) {
  for (size_t i = 0, n = c->in_parts ? count * ranks : count; i < n; i++) input[i] = value(rank, i);
}

/* One value is broken on purpose, to see that it is found: of a rank, or as a machine's fault. */
static void corrupt(float *send, float *recv, size_t results, size_t bytes) {
  const char *victim = getenv("NCCL_TESTS_CPU_CORRUPT");
  bool faulty = send && local_rank == 0 && bytes == number_in(FAULTS, "wrong-value-at", -1);
  if (results && (faulty || (victim && atoi(victim) == rank))) recv[results / 2] += 1;
}

static long long count_wrong(const Collective *c, float *send, float *recv, size_t count) {
  size_t results = c->root_only && rank != ROOT ? 0 : c->out_parts ? count * ranks : count;
  size_t bytes = (c->out_parts || c->in_parts ? count * ranks : count) * sizeof(float);
  long long wrong = 0, all;
  for (long check = 0; check < checks; check++) {
    memset(recv, 0xff, bytes);
    fill(c, send ? send : c->own_part ? recv + rank * count : recv, count);
    c->run(send, recv, count);
    corrupt(send, recv, results, bytes);
    for (size_t i = 0; i < results; i++) wrong += recv[i] != c->expects(i, count);
  }
  MPI_Allreduce(&wrong, &all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
  return all;
}

/* The slowest rank's time of one iteration, averaged over the iterations. */
static double time_iterations(const Collective *c, float *send, float *recv, size_t count) {
  for (long i = 0; i < warmups; i++) c->run(send, recv, count);
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (long i = 0; i < iterations; i++) c->run(send, recv, count);
  double mine = (MPI_Wtime() - start) / iterations, slowest;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

static Measurement measure(const Collective *c, float *send, float *recv, size_t count) {
  size_t bytes = count * sizeof(float) * (c->in_parts || c->out_parts ? ranks : 1);
  memset(recv, 0, bytes);
  fill(c, send ? send : c->own_part ? recv + rank * count : recv, count);
  Measurement m;
  double seconds = time_iterations(c, send, recv, count);
  m.microseconds = seconds * 1e6;
  m.algbw = seconds > 0 ? bytes / 1e9 / seconds : 0;
  m.busbw = m.algbw * c->factor();
  m.wrong = checks && (send || !c->in_place_unchecked) ? count_wrong(c, send, recv, count) : -1;
  return m;
}

/* ---- The table. ---- */

static void print_measurement(Measurement m) {
  int decimals = m.microseconds >= 10000 ? 0 : m.microseconds >= 100 ? 1 : 2;
  PRINT("  %7.*f  %6.2f  %6.2f", decimals, m.microseconds, m.algbw, m.busbw);
  if (m.wrong < 0) PRINT("  %5s", "N/A");
  else PRINT("  %5g", (double)m.wrong);
}

static void print_devices(void) {
  char host[256] = "", line[512] = "", *lines = NULL;
  gethostname(host, sizeof host - 1);
  host[strcspn(host, ".")] = 0;
  snprintf(line, sizeof line, "#  Rank %2d Group %2d Pid %6d on %10s device %2d [0x%02x] %s\n",
           rank, 0, getpid(), host, local_rank, 0, "CPU stand-in");
  if (rank == 0) lines = malloc(sizeof line * ranks);
  MPI_Gather(line, sizeof line, MPI_BYTE, lines, sizeof line, MPI_BYTE, 0, MPI_COMM_WORLD);
  for (int r = 0; rank == 0 && r < ranks; r++) fputs(lines + r * sizeof line, stdout);
  free(lines);
}

static void print_header(const Collective *c) {
  PRINT("# CPU stand-in for nccl-tests' %s: MPI on host memory. No GPU and no NCCL is involved;\n"
        "# its times say nothing of either.\n", c->name);
  PRINT("# nThread %d nGpus %ld minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %ld "
        "iters: %ld agg iters: %d validation: %ld graph: %d\n", 1, gpus, min_bytes, max_bytes,
        step_factor > 1 ? (size_t)step_factor : step_bytes, step_factor > 1 ? "factor" : "bytes",
        warmups, iterations, 1, checks, 0);
  PRINT("#\n# Using devices\n");
  print_devices();
  PRINT("#\n");
  PRINT("# %10s  %12s  %8s  %6s  %6s           out-of-place    %18s in-place          \n", "", "",
        "", "", "", "");
  PRINT("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s %6s  %7s  %6s  %6s %6s\n", "size", "count",
        "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw",
        "#wrong");
  PRINT("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %5s  %7s  %6s  %6s  %5s\n", "(B)",
        "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
}

/* The number of results with wrong data; adds every bus bandwidth to *total. */
static int run_size(const Collective *c, size_t bytes, double *total) {
  bool parts = c->in_parts || c->out_parts;
  size_t count = bytes / sizeof(float);
  if (parts) count = count / ranks & ~(size_t)3; /* as nccl-tests: parts aligned to 16 bytes */
  size_t used = count * sizeof(float) * (parts ? ranks : 1);
  float *send = malloc(used + 1), *recv = malloc(used + 1);
  if (!send || !recv) MPI_Abort(MPI_COMM_WORLD, 1);
  PRINT("%12zu  %12zu  %8s  %6s  %6d", used, count, "float", c->operation, c->root);
  Measurement out_of_place = measure(c, send, recv, count);
  print_measurement(out_of_place);
  Measurement in_place = measure(c, NULL, recv, count);
  print_measurement(in_place);
  PRINT("\n");
  free(send), free(recv);
  *total += out_of_place.busbw + in_place.busbw;
  return (out_of_place.wrong > 0) + (in_place.wrong > 0);
}

static int run(const Collective *c) {
  size_t largest = largest_buffer();
  double total = 0;
  int wrong = 0, sizes = 0;
  print_header(c);
  for (size_t size = min_bytes; size <= max_bytes;
       size = step_factor > 1 ? size * step_factor : size + step_bytes) {
    if (size > largest) {
      PRINT("# size %zu skipped: a buffer holds at most %zu bytes here (" CONFIGURATION
            ", memory for %d ranks on a machine)\n", size, largest, local_ranks);
    } else {
      wrong += run_size(c, size, &total);
      sizes++;
    }
    if (size == 0 && step_factor > 1) break; /* a factor does not lead away from nothing */
  }
  PRINT("# Out of bounds values : %d %s\n", wrong, wrong ? "FAILED" : "OK");
  PRINT("# Avg bus bandwidth    : %g \n#\n", sizes ? total / (2 * sizes) : 0);
  return wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv) {
  MPI_Comm local;
  MPI_Init(&argc, &argv);
  setlinebuf(stdout);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local);
  MPI_Comm_rank(local, &local_rank), MPI_Comm_size(local, &local_ranks);
  const Collective *collective = find_collective(basename(argv[0]));
  int status = parse_flags(argc, argv) - 1;
  if (status < 0 && collective) status = run(collective);
  if (status < 0) {
    COMPLAIN("%s is not a collective of this CPU stand-in\n", argv[0]);
    status = EXIT_FAILURE;
  }
  MPI_Finalize();
  return status;
}
