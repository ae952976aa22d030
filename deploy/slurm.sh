#!/bin/sh
# One server on each node of a job: sbatch --nodes=3 slurm.sh model.gguf
# servers.txt has their addresses, for the router's configuration. scancel ends them as SIGTERM does.
#SBATCH --job-name=weft
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --time=12:00:00
set -eu
model=${1:?"usage: sbatch --nodes=3 slurm.sh MODEL"}
scontrol show hostnames "$SLURM_JOB_NODELIST" | sed 's|.*|http://&:8080|' > servers.txt
: "${LLAMA_API_KEY:?"the key that clients send"}"
exec srun --mpi=none --kill-on-bad-exit=0 weft serve -m "$model" --host 0.0.0.0 --port 8080 --allow-host '*' --drain 25
