// weft plan: estimates the speed and memory of a model on several machines, without having them. The library plans one
// machine's part (weft_plan); this file prints the table.
#include "app/app.h"
#include "app/json.h"
#include "app/model_args.h"
#include "base/env.h"
#include "base/progress.h"

static const struct command command = {
  "plan",
  "Predicts a model's speed and memory on several machines like this one.",
  "-m FILE [--machines N] [--link LINK] [options]",
  "Runs what one of N machines would run, with made-up weights, and adds the time of messages over the link. Only\n"
  "the head of the file is read, so a model may be larger than this machine's memory. Neither MPI nor other machines\n"
  "are needed. Machines with other processors or memory have other times.\n"
  "  one      the whole model on one machine\n"
  "  rows     each machine has rows of all matrices: mpirun -n N weft run ... (docs/machines.md)\n"
  "  layers   each machine has some of the layers (-sm layer); a token goes through one machine after the other,\n"
  "           and the chunks of a long prompt follow each other\n"
  "  link     the part of the time before it that messages between machines take\n",
  COMMAND_BIT(plan),
  0};

static const char *const words[] = {"one", "rows", "layers"}, *const keys[] = {"one", "row", "layer"};

static uint64_t most_memory(const weft_planned_split *s) {
  uint64_t most = 0;
  for (int i = 0; i < s->machines; i++) if (s->memory[i] > most) most = s->memory[i];
  return most;
}

static void show_time(struct out *to, double us, double link_us, int tokens) {
  if (us > 0) out_addf(to, " %9.2f %9.1f %6.1f%%", 1e6 * tokens / us, us / 1e3, 100 * link_us / us);
  else out_addf(to, " %9s %9s %7s", "-", "-", "-");
}

static void show_plan(struct out *to, const weft_planned *p) {
  out_addf(to, "%-7s %8s %9s %9s %7s %9s %9s %7s %11s\n", "split", "machines", "tokens/s", "ms", "link", "prompt/s",
           "ms", "link", "memory");
  for (size_t i = 0; i < p->n_splits; i++) {
    const weft_planned_split *s = &p->splits[i];
    out_addf(to, "%-7s %8d", words[s->split], s->machines);
    show_time(to, s->token_us, s->token_link_us, 1);
    show_time(to, s->chunk_us, s->chunk_link_us, p->chunk);
    out_addf(to, " %7.2f GiB%s\n", (double)most_memory(s) / 0x1p30,
             p->machine_bytes && most_memory(s) > p->machine_bytes ? " (more than this machine has)" : "");
  }
  out_addf(to, "\nlink          %g us and %g Gbit/s\n", p->latency_us, p->gbit_s);
  for (size_t i = 0; i < p->n_splits; i++)
    if (p->splits[i].split == WEFT_PLAN_ROW)
      out_addf(to, "messages      %d of %.0f bytes together for a token\n", p->splits[i].token_gathers,
               p->splits[i].token_bytes);
  out_addf(to, "prompt        %d tokens at once\n", p->chunk);
  out_addf(to, "memory        of the machine that needs most, with a context of %d positions", p->context);
  if (p->machine_bytes) out_addf(to, "; this one has %.2f GiB", (double)p->machine_bytes / 0x1p30);
  out_addf(to, "\n");
}

static json_t *real_or_null(double x) { return x > 0 ? json_real(x) : json_null(); }

static void show_plan_json(struct out *to, const weft_planned *p) {
  json_t *all = json_object(), *rows = json_array();
  json_object_set_new(all, "latency_us", json_real(p->latency_us));
  json_object_set_new(all, "gbit_s", json_real(p->gbit_s));
  json_object_set_new(all, "context", json_integer(p->context));
  json_object_set_new(all, "chunk", json_integer(p->chunk));
  json_object_set_new(all, "machine_bytes",
                      p->machine_bytes ? json_integer((json_int_t)p->machine_bytes) : json_null());
  for (size_t i = 0; i < p->n_splits; i++) {
    const weft_planned_split *s = &p->splits[i];
    json_t *o = json_object(), *memory = json_array();
    for (int j = 0; j < s->machines; j++) json_array_append_new(memory, json_integer((json_int_t)s->memory[j]));
    json_object_set_new(o, "split", json_string(keys[s->split]));
    json_object_set_new(o, "machines", json_integer(s->machines));
    json_object_set_new(o, "token_us", json_real(s->token_us));
    json_object_set_new(o, "chunk_us", real_or_null(s->chunk_us));
    json_object_set_new(o, "token_link_us", json_real(s->token_link_us));
    json_object_set_new(o, "chunk_link_us", s->chunk_us > 0 ? json_real(s->chunk_link_us) : json_null());
    json_object_set_new(o, "token_gathers", json_integer(s->token_gathers));
    json_object_set_new(o, "chunk_gathers", json_integer(s->chunk_gathers));
    json_object_set_new(o, "token_bytes", json_real(s->token_bytes));
    json_object_set_new(o, "chunk_bytes", json_real(s->chunk_bytes));
    json_object_set_new(o, "memory", memory);
    json_array_append_new(rows, o);
  }
  json_object_set_new(all, "splits", rows);
  out_json(to, all, JSON_INDENT(1) | JSON_REAL_PRECISION(8));
}

static int plan(struct settings *o) {
  weft_error err;
  weft_planned *p;
  progress bar = {0};
  struct out to = {0};
  if (!o->model.model) return usage_error("no model: give one with -m FILE");
  keep_to_evaluating(o, NULL);
  env_set(ENV_WEFT_TUNE, "off");
  env_set(ENV_BEAM, "0");                                    // no kernel search on made-up weights
  progress_begin(&bar);
  weft_options opening = model_args_options(&o->model);
  opening.progress = show_progress;
  opening.progress_ctx = &bar;
  weft_plan_options planning = {.machines = (int)o->machines,
                                .link = o->link,
                                .depth = (int)o->depth,
                                .no_prompt = o->no_prompt};
  int status = weft_plan(o->model.model, &opening, &planning, &p, &err);
  progress_end(&bar);
  if (status) return failed("%s", err.text);
  if (o->json) show_plan_json(&to, p);
  else show_plan(&to, p);
  weft_planned_free(p);
  return out_end(&to, EXIT_OK);
}

int plan_command(int argc, char **argv) { return settings_run(&command, argc, argv, plan); }
