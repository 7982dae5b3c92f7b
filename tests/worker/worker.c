/* A worker in C (docs/worker.md): one client, named by the first argument, whose loss is |w - a|^2 / 2 with a = the
   second argument in every coordinate. Models in float64; takes full-batch steps. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char line[1 << 20], header[1 << 20], numbers[1 << 16], path[4096], key[256], name[256], shape[256];
static double a, w[1 << 16], u[1 << 16], values[1 << 20];

static const char* After(const char* text, const char* mark) { return strstr(text, mark) + strlen(mark); }

static size_t ReadModel(void) {
  uint64_t length = 0;
  sscanf(After(line, "\"file\":\""), "%4095[^\"]", path);
  FILE* file = fopen(path, "rb");
  if (fread(&length, 8, 1, file) != 1 || fseek(file, (long)length, SEEK_CUR) != 0) abort();
  const size_t d = fread(w, sizeof *w, sizeof w / sizeof *w, file);
  return fclose(file), d;
}

static void Answer(FILE* out) {
  const size_t d = ReadModel();
  const double eta = atof(After(line, "\"step_size\":"));
  const int rule_steps = atoi(After(After(line, "\"rule\":"), "\"steps\":"));
  size_t used = 0; /* values for the answer's file */
  strcpy(numbers, ""), strcpy(header, "{");
  for (const char* sum = strstr(line, "\"sums\":"); (sum = strstr(sum, "{\"key\":")) != NULL; ++sum) {
    int steps = 0;
    sscanf(sum, "{\"key\":\"%255[^\"]\",\"name\":\"%255[^\"]\",\"steps\":%d,\"shape\":\"%255[^\"]\"", key, name, &steps, shape);
    if (strcmp(shape, "number") == 0) {
      double loss = 0;
      for (size_t i = 0; i < d; ++i) loss += 0.5 * (w[i] - a) * (w[i] - a);
      sprintf(numbers + strlen(numbers), "%s\"%s\":%.17g", *numbers ? "," : "", key, strcmp(name, "loss") ? 0 : loss);
      continue;
    }
    const int h = steps > 0 ? steps : rule_steps;
    sprintf(header + strlen(header), "%s\"%s\":{\"dtype\":\"F64\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}",
            used ? "," : "", key, d, 8 * used, 8 * (used + d));
    for (size_t i = 0; i < d; ++i, ++used) {
      for (int step = u[i] = 0; step < h; ++step) u[i] += eta * (w[i] - u[i] - a);
      if (strcmp(name, "gradient") == 0) values[used] = w[i] - a;
      if (strcmp(name, "displacement") == 0) values[used] = u[i];
      if (strcmp(name, "drift") == 0) values[used] = (eta * (w[i] - a) - u[i] / h) / eta;
    }
  }
  strcat(header, "}");
  const uint64_t length = strlen(header);
  sscanf(After(line, "\"answer_file\":\""), "%4095[^\"]", path);
  FILE* file = fopen(path, "r+b");
  fwrite(&length, 8, 1, file), fwrite(header, 1, length, file), fwrite(values, sizeof *values, used, file);
  fclose(file);
  fprintf(out, "{\"type\":\"answer\",\"order\":%ld,\"numbers\":{%s}}\n", atol(After(line, "\"order\":")), numbers);
}

int main(int argc, char** argv) {
  const int fd = atoi(getenv("LEEWAY_WORKER_FD"));
  FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
  a = argc > 2 ? atof(argv[2]) : 0;
  for (; fgets(line, sizeof line, in) != NULL && !strstr(line, "\"type\":\"finished\""); fflush(out)) {
    if (strstr(line, "\"type\":\"hello\"")) fprintf(out, "{\"type\":\"hello\",\"version\":1,\"clients\":[{\"name\":\"%s\",\"examples\":1}]}\n", argv[1]);
    if (strstr(line, "\"type\":\"prepare\"")) fputs("{\"type\":\"ready\"}\n", out);
    if (strstr(line, "\"type\":\"order\"")) Answer(out);
  }
  return 0;
}
