# In this folder: PYTHONPATH=../.. sh -e train.sh
python pretrain.py
for part in whole head adapter; do
  case $part in whole) model=create_whole ;; *) model=create_with_$part ;; esac
  python -m tasks.train --task=clients.npz --model=models.py:$model --algorithm=dp_fed_avg --sampling=poisson \
      --target_epsilon=2 --target_delta=1e-4 --clipping_norm=0.5 --clients_per_round=100 --num_rounds=40 \
      --local_steps=8 --batch_size=8 --client_learning_rate=0.2 --rounds_per_evaluation=40 --output_dir=runs/$part
done
python -m analysis.report runs/* --output=report
