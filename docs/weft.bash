# Completion of weft for bash: source this file, or install it as /usr/share/bash-completion/completions/weft.
# Made from the program's table of options by scripts/docs.sh.
_weft() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words= files=yes
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ] || { [ "$COMP_CWORD" -eq 2 ] && [ "$before" = help ]; }; then
    words="run chat serve loadtest bench embed perplexity quantize convert export imatrix pull list rm profile plan viz tune cache inspect tokenize template env doctor uninstall help --help --version"
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word"; [ "$before" = help ] || compgen -f -X '!*.gguf' -- "$word")
    return
  fi
  case "$command $before" in
    "run -m"|"run --model"|"chat -m"|"chat --model"|"embed -m"|"embed --model"|"perplexity -m"|"perplexity --model"|"imatrix -m"|"imatrix --model"|"profile -m"|"profile --model"|"plan -m"|"plan --model"|"viz -m"|"viz --model"|"tune -m"|"tune --model"|"inspect -m"|"inspect --model"|"tokenize -m"|"tokenize --model")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X '!*.gguf' -- "$word"); return;;
    "template -m"|"template --model")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X '!*.gguf' -- "$word"); return;;
    "bench -m"|"bench --model")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X '!*.gguf' -- "$word"); return;;
    "serve -m"|"serve --model")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$word"; compgen -f -X '!*.gguf' -- "$word"); return;;
    "run -hff"|"run --hf-file"|"chat -hff"|"chat --hf-file"|"serve -hff"|"serve --hf-file"|"bench -hff"|"bench --hf-file"|"embed -hff"|"embed --hf-file"|"perplexity -hff"|"perplexity --hf-file"|"imatrix -hff"|"imatrix --hf-file"|"pull -hff"|"pull --hf-file"|"profile -hff"|"profile --hf-file"|"plan -hff"|"plan --hf-file"|"viz -hff"|"viz --hf-file"|"tune -hff"|"tune --hf-file"|"inspect -hff"|"inspect --hf-file"|"tokenize -hff"|"tokenize --hf-file"|"template -hff"|"template --hf-file")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "embed -f"|"embed --file")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "perplexity -f"|"perplexity --file"|"imatrix -f"|"imatrix --file")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "imatrix -o"|"imatrix --output"|"imatrix --output-file")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "run -f"|"run --file"|"run -bf"|"run --binary-file"|"chat -f"|"chat --file"|"chat -bf"|"chat --binary-file"|"tokenize -f"|"tokenize --file"|"tokenize -bf"|"tokenize --binary-file")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "profile --image"|"profile --audio")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "embed --image"|"embed --audio")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "run --image"|"run --audio"|"chat --image"|"chat --audio")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "run -mm"|"run --mmproj"|"chat -mm"|"chat --mmproj"|"serve -mm"|"serve --mmproj"|"embed -mm"|"embed --mmproj"|"profile -mm"|"profile --mmproj")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "chat -sysf"|"chat --system-prompt-file")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "chat --chat-template"|"serve --chat-template")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "chat --chat-template-file"|"serve --chat-template-file")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "chat --chat-template-kwargs"|"serve --chat-template-kwargs"|"template --chat-template-kwargs")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "chat --tools"|"template --tools")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "chat -rea"|"chat --reasoning"|"serve -rea"|"serve --reasoning")
      words="auto on off" files=no;;
    "chat --reasoning-format"|"serve --reasoning-format")
      words="auto deepseek none" files=no;;
    "template --messages")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "serve --api-key-file")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "serve --ssl-key-file")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "serve --ssl-cert-file")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "serve --log-format")
      words="text json" files=no;;
    "serve --log-file")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "serve --kv-events-config")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "loadtest --html")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "perplexity --kl-divergence-base"|"perplexity --save-all-logits")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "serve --pooling"|"embed --pooling")
      words="model none mean cls last rank" files=no;;
    "embed --embd-output-format")
      words="text array json json+ raw" files=no;;
    "convert --outtype")
      words="auto f32 f16 bf16 q8_0" files=no;;
    "convert --outfile"|"convert -o")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "export -o"|"export --output")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "export --program")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "quantize --tensor-type-file")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "quantize --imatrix")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "viz --out")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "run --grammar-file"|"chat --grammar-file"|"serve --grammar-file")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "run -jf"|"run --json-schema-file"|"chat -jf"|"chat --json-schema-file"|"serve -jf"|"serve --json-schema-file")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "run --stats")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "chat -co"|"chat --color")
      words="auto on off" files=no;;
    "run -md"|"run --model-draft"|"run --spec-draft-model"|"chat -md"|"chat --model-draft"|"chat --spec-draft-model"|"serve -md"|"serve --model-draft"|"serve --spec-draft-model")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "run --rope-scaling"|"chat --rope-scaling"|"serve --rope-scaling"|"bench --rope-scaling"|"embed --rope-scaling"|"perplexity --rope-scaling"|"imatrix --rope-scaling"|"profile --rope-scaling"|"plan --rope-scaling"|"viz --rope-scaling"|"tune --rope-scaling")
      words="model none linear yarn" files=no;;
    "run --yarn-truncate"|"chat --yarn-truncate"|"serve --yarn-truncate"|"bench --yarn-truncate"|"embed --yarn-truncate"|"perplexity --yarn-truncate"|"imatrix --yarn-truncate"|"profile --yarn-truncate"|"plan --yarn-truncate"|"viz --yarn-truncate"|"tune --yarn-truncate")
      words="model on off" files=no;;
    "run --lora"|"run --lora-scaled"|"chat --lora"|"chat --lora-scaled"|"serve --lora"|"serve --lora-scaled"|"bench --lora"|"bench --lora-scaled"|"embed --lora"|"embed --lora-scaled"|"perplexity --lora"|"perplexity --lora-scaled"|"imatrix --lora"|"imatrix --lora-scaled"|"profile --lora"|"profile --lora-scaled"|"plan --lora"|"plan --lora-scaled"|"viz --lora"|"viz --lora-scaled"|"tune --lora"|"tune --lora-scaled")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "run --control-vector"|"chat --control-vector"|"serve --control-vector"|"bench --control-vector"|"embed --control-vector"|"perplexity --control-vector"|"imatrix --control-vector"|"profile --control-vector"|"plan --control-vector"|"viz --control-vector"|"tune --control-vector")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "run --control-vector-scaled"|"chat --control-vector-scaled"|"serve --control-vector-scaled"|"bench --control-vector-scaled"|"embed --control-vector-scaled"|"perplexity --control-vector-scaled"|"imatrix --control-vector-scaled"|"profile --control-vector-scaled"|"plan --control-vector-scaled"|"viz --control-vector-scaled"|"tune --control-vector-scaled")
      compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word"); return;;
    "run -sm"|"run --split-mode"|"chat -sm"|"chat --split-mode"|"serve -sm"|"serve --split-mode"|"bench -sm"|"bench --split-mode"|"embed -sm"|"embed --split-mode"|"perplexity -sm"|"perplexity --split-mode"|"imatrix -sm"|"imatrix --split-mode"|"profile -sm"|"profile --split-mode"|"plan -sm"|"plan --split-mode"|"viz -sm"|"viz --split-mode"|"tune -sm"|"tune --split-mode")
      words="auto row layer none tensor" files=no;;
    "run --precision"|"chat --precision"|"serve --precision"|"bench --precision"|"embed --precision"|"perplexity --precision"|"imatrix --precision"|"profile --precision"|"plan --precision"|"viz --precision"|"tune --precision")
      words="fast exact" files=no;;
    "bench -o"|"bench --output")
      words="md json jsonl csv sql" files=no;;
  esac
  [ -n "$words" ] || case "$command" in
    run) words="-m --model -hf -hfr --hf-repo -hff --hf-file -mu --model-url -hft --hf-token --offline -p --prompt -f --file -bf --binary-file --image --audio -mm --mmproj --no-mmproj --no-mmproj-auto --image-min-tokens --image-max-tokens --ids -e --escape --no-escape --no-bos --parse-special -n --predict --n-predict --count -c --ctx-size -r --reverse-prompt -l --logit-bias --ignore-eos --repeat-penalty --frequency-penalty --presence-penalty --repeat-last-n --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --top-nsigma --top-n-sigma --top-k --typical --typical-p --top-p --min-p --xtc-probability --xtc-threshold --temp --temperature --dynatemp-range --dynatemp-exp --mirostat --mirostat-ent --mirostat-lr --adaptive-target --adaptive-decay --samplers --sampler-seq --sampling-seq -s --seed --diffusion-steps --diffusion-eps --diffusion-block-length --diffusion-algorithm --diffusion-alg-temp --diffusion-cfg-scale --diffusion-add-gumbel-noise --diffusion-visual --grammar --grammar-file -j --json-schema -jf --json-schema-file --regex --json --top-logprobs --force -sp --special --display-prompt --no-display-prompt --verbose-prompt --stats --benchmark -v --verbose --log-verbose --perf -q --quiet --log-disable -md --model-draft --spec-draft-model -hfd -hfrd --hf-repo-draft --spec-draft-hf --draft --draft-n --draft-max --spec-draft-n-max --draft-min --draft-n-min --spec-draft-n-min --draft-p-min --spec-draft-p-min --no-speculation --draft-always -t --threads -tb --threads-batch -ub --ubatch-size --mlock --override-kv -ctk --cache-type-k -ctv --cache-type-v --rope-scaling --rope-scale --rope-freq-scale --rope-freq-base --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --yarn-truncate --lora --lora-scaled --control-vector --control-vector-scaled --control-vector-layer-range -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -nr --no-repack --precision --help";;
    chat) words="-m --model -hf -hfr --hf-repo -hff --hf-file -mu --model-url -hft --hf-token --offline -p --prompt -f --file -bf --binary-file --image --audio -mm --mmproj --no-mmproj --no-mmproj-auto --image-min-tokens --image-max-tokens -e --escape --no-escape -sys --system-prompt -sysf --system-prompt-file -no-cnv --no-conversation -st --single-turn --chat-template --chat-template-file --chat-template-kwargs --tools -rea --reasoning --reasoning-format --reasoning-budget --reasoning-budget-message --reasoning-effort --context-shift --no-context-shift --chat-bos -n --predict --n-predict --count -c --ctx-size -r --reverse-prompt -l --logit-bias --ignore-eos --repeat-penalty --frequency-penalty --presence-penalty --repeat-last-n --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --top-nsigma --top-n-sigma --top-k --typical --typical-p --top-p --min-p --xtc-probability --xtc-threshold --temp --temperature --dynatemp-range --dynatemp-exp --mirostat --mirostat-ent --mirostat-lr --adaptive-target --adaptive-decay --samplers --sampler-seq --sampling-seq -s --seed --diffusion-steps --diffusion-eps --diffusion-block-length --diffusion-algorithm --diffusion-alg-temp --diffusion-cfg-scale --diffusion-add-gumbel-noise --diffusion-visual --grammar --grammar-file -j --json-schema -jf --json-schema-file --regex --json --verbose-prompt --show-timings --rates --no-show-timings --no-rates -co --color --simple-io -v --verbose --log-verbose --perf -q --quiet --log-disable -md --model-draft --spec-draft-model -hfd -hfrd --hf-repo-draft --spec-draft-hf --draft --draft-n --draft-max --spec-draft-n-max --draft-min --draft-n-min --spec-draft-n-min --draft-p-min --spec-draft-p-min --no-speculation --draft-always -t --threads -tb --threads-batch -ub --ubatch-size --mlock --override-kv -ctk --cache-type-k -ctv --cache-type-v --rope-scaling --rope-scale --rope-freq-scale --rope-freq-base --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --yarn-truncate --lora --lora-scaled --control-vector --control-vector-scaled --control-vector-layer-range -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -nr --no-repack --precision --help";;
    serve) words="-m --model -hf -hfr --hf-repo -hff --hf-file -mu --model-url -hft --hf-token --offline -mm --mmproj --no-mmproj --no-mmproj-auto --image-min-tokens --image-max-tokens --chat-template --chat-template-file --chat-template-kwargs -rea --reasoning --reasoning-format --reasoning-budget --reasoning-budget-message --reasoning-effort --chat-bos -a --alias -c --ctx-size --models-dir --models-max --sleep-idle-seconds --models-autoload --no-models-autoload --host --port --api-key-file --api-key --no-key --ssl-key-file --ssl-cert-file --api-prefix --allow-host --allow-media-from --allow-origin --cors-origins --webui --ui --page --no-webui --no-ui --no-page --slots --no-slots --log-format --log-jsonl --no-log-jsonl --log-file -v --verbose --log-verbose -q --quiet --log-disable -lv --verbosity --log-verbosity --max-connections -np --parallel --max-queue --max-queue-tokens --max-wait -to --timeout --threads-http --spm-infill --max-body --max-request-memory --max-request-work --max-memory --max-encoder-memory --keep-in --keep-size --path --slot-save-path --kv-events-config --block-size --drain --drain-delay --pooling --rerank --reranking --embd-normalize -n --predict --n-predict --count -r --reverse-prompt -l --logit-bias --ignore-eos --repeat-penalty --frequency-penalty --presence-penalty --repeat-last-n --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --top-nsigma --top-n-sigma --top-k --typical --typical-p --top-p --min-p --xtc-probability --xtc-threshold --temp --temperature --dynatemp-range --dynatemp-exp --mirostat --mirostat-ent --mirostat-lr --adaptive-target --adaptive-decay --samplers --sampler-seq --sampling-seq -s --seed --grammar --grammar-file -j --json-schema -jf --json-schema-file -md --model-draft --spec-draft-model -hfd -hfrd --hf-repo-draft --spec-draft-hf --draft --draft-n --draft-max --spec-draft-n-max --draft-min --draft-n-min --spec-draft-n-min --draft-p-min --spec-draft-p-min --no-speculation --draft-always -t --threads -tb --threads-batch -ub --ubatch-size --override-kv -ctk --cache-type-k -ctv --cache-type-v --rope-scaling --rope-scale --rope-freq-scale --rope-freq-base --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --yarn-truncate --lora-init-without-apply --lora --lora-scaled --control-vector --control-vector-scaled --control-vector-layer-range -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -nr --no-repack --precision --help";;
    loadtest) words="--html -j --clients -n --requests --prompt --tokens --model --api-key --json --help";;
    bench) words="-m --model -hf -hfr --hf-repo -hff --hf-file -mu --model-url -hft --hf-token --offline -p --n-prompt -npp -n --n-gen -ntg -npl --n-parallel -pg -d --n-depth -r --repetitions --delay -tb --threads-batch -t --threads -ub --ubatch-size --mlock --override-kv -ctk --cache-type-k -ctv --cache-type-v --rope-scaling --rope-scale --rope-freq-scale --rope-freq-base --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --yarn-truncate --lora --lora-scaled --control-vector --control-vector-scaled --control-vector-layer-range -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -nr --no-repack --precision -o --output --help";;
    embed) words="-m --model -hf -hfr --hf-repo -hff --hf-file -mu --model-url -hft --hf-token --offline -p --prompt -f --file --image --audio -mm --mmproj --no-mmproj --no-mmproj-auto --image-min-tokens --image-max-tokens --ids -e --escape --no-escape --parse-special -c --ctx-size --pooling --cls-separator --embd-normalize --embd-output-format --embd-separator -q --quiet --log-disable -t --threads -tb --threads-batch -ub --ubatch-size --mlock --override-kv -ctk --cache-type-k -ctv --cache-type-v --rope-scaling --rope-scale --rope-freq-scale --rope-freq-base --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --yarn-truncate --lora --lora-scaled --control-vector --control-vector-scaled --control-vector-layer-range -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -nr --no-repack --precision --help";;
    perplexity) words="-m --model -hf -hfr --hf-repo -hff --hf-file -mu --model-url -hft --hf-token --offline -p --prompt -f --file -c --ctx-size --chunks --ppl-stride --ppl-output-type --kl-divergence-base --save-all-logits --kl-divergence -t --threads -tb --threads-batch -ub --ubatch-size --mlock --override-kv -ctk --cache-type-k -ctv --cache-type-v --rope-scaling --rope-scale --rope-freq-scale --rope-freq-base --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --yarn-truncate --lora --lora-scaled --control-vector --control-vector-scaled --control-vector-layer-range -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -nr --no-repack --precision --help";;
    quantize) words="--allow-requantize --leave-output-tensor --pure --output-tensor-type --token-embedding-type --tensor-type --tensor-type-file --imatrix --include-weights --exclude-weights --override-kv --keep-split --dry-run --max-buffer-size -t --threads --help";;
    convert) words="--outtype --outfile -o -t --threads --help";;
    export) words="-o --output --c -c --ctx-size --cpu --program --help";;
    imatrix) words="-m --model -hf -hfr --hf-repo -hff --hf-file -mu --model-url -hft --hf-token --offline -f --file -o --output --output-file --parse-special -c --ctx-size --chunks --from-chunk --chunk --output-frequency -t --threads -tb --threads-batch -ub --ubatch-size --mlock --override-kv -ctk --cache-type-k -ctv --cache-type-v --rope-scaling --rope-scale --rope-freq-scale --rope-freq-base --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --yarn-truncate --lora --lora-scaled --control-vector --control-vector-scaled --control-vector-layer-range -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -nr --no-repack --precision --help";;
    pull) words="-hff --hf-file -hft --hf-token --no-mmproj --no-mmproj-auto -q --quiet --help";;
    list) words="--json --help";;
    rm) words="-y --yes -q --quiet --help";;
    profile) words="-m --model -hf -hfr --hf-repo -hff --hf-file -mu --model-url -hft --hf-token --offline --image --audio -mm --mmproj --no-mmproj --no-mmproj-auto --image-min-tokens --image-max-tokens -n --n-gen -p --prefill -d --n-depth -t --threads -tb --threads-batch -ub --ubatch-size --mlock --override-kv -ctk --cache-type-k -ctv --cache-type-v --rope-scaling --rope-scale --rope-freq-scale --rope-freq-base --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --yarn-truncate --lora --lora-scaled --control-vector --control-vector-scaled --control-vector-layer-range -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -nr --no-repack --precision --json --help";;
    plan) words="-m --model -hf -hfr --hf-repo -hff --hf-file -mu --model-url -hft --hf-token --offline --machines --link --no-prompt -c --ctx-size -d --n-depth -t --threads -tb --threads-batch -ub --ubatch-size --mlock --override-kv -ctk --cache-type-k -ctv --cache-type-v --rope-scaling --rope-scale --rope-freq-scale --rope-freq-base --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --yarn-truncate --lora --lora-scaled --control-vector --control-vector-scaled --control-vector-layer-range -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -nr --no-repack --precision --json --help";;
    viz) words="-m --model -hf -hfr --hf-repo -hff --hf-file -mu --model-url -hft --hf-token --offline -n --n-gen -p --prefill -d --n-depth --out -t --threads -tb --threads-batch -ub --ubatch-size --mlock --override-kv -ctk --cache-type-k -ctv --cache-type-v --rope-scaling --rope-scale --rope-freq-scale --rope-freq-base --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --yarn-truncate --lora --lora-scaled --control-vector --control-vector-scaled --control-vector-layer-range -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -nr --no-repack --precision --help";;
    tune) words="-m --model -hf -hfr --hf-repo -hff --hf-file -mu --model-url -hft --hf-token --offline --beam --budget --skip-ms --no-prompt --no-layouts --predict -c --ctx-size -d --n-depth -t --threads -tb --threads-batch -ub --ubatch-size --mlock --override-kv -ctk --cache-type-k -ctv --cache-type-v --rope-scaling --rope-scale --rope-freq-scale --rope-freq-base --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast --yarn-truncate --lora --lora-scaled --control-vector --control-vector-scaled --control-vector-layer-range -ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -nr --no-repack --precision --all --json --help";;
    cache) words="list verify clear export import --tunings --json --help";;
    inspect) words="-m --model -hf -hfr --hf-repo -hff --hf-file -mu --model-url -hft --hf-token --offline --json --full --help";;
    tokenize) words="-m --model -hf -hfr --hf-repo -hff --hf-file -mu --model-url -hft --hf-token --offline -p --prompt -f --file -bf --binary-file --stdin --ids -e --escape --no-escape --no-bos --parse-special --detokenize --help";;
    template) words="-m --model -hf -hfr --hf-repo -hff --hf-file -mu --model-url -hft --hf-token --offline --chat-template-kwargs --tools --messages --no-generation-prompt --bos --eos --now --help";;
    env) words="--json --help";;
    doctor) words="--json --help";;
    uninstall) words="--json --help";;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  case "$files$word" in yes-*|no*) ;; *) compopt -o filenames 2>/dev/null; mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$word");; esac
}
complete -F _weft weft
