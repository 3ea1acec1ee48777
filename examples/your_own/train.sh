python -m tasks.train --flagfile=mine.flags --algorithm=fed_avg --output_dir=runs/fed_avg
python -m tasks.train --flagfile=mine.flags --algorithm=ce_fed_avg --clipping_norm_from=runs/fed_avg \
    --output_dir=runs/ce_fed_avg
python -m tasks.train --flagfile=mine.flags --algorithm=dp_fed_avg --clipping_norm=0.1 --sampling=poisson --accountant=pld \
    --target_epsilon=8 --target_delta=1e-2 --output_dir=runs/private
tff-clipping-ledger runs/private
python -m tasks.train --flagfile=mine.flags --algorithm=fed_avg --aggregator=mine.py:create_aggregator \
    --server_learning_rate=0.02 --output_dir=runs/sign
python -m tasks.train --flagfile=mine.flags --algorithm=dp_fed_avg --aggregator=mine.py:create_private_aggregator \
    --clipping_norm=1 --server_learning_rate=0.3 --sampling=poisson --target_epsilon=8 --target_delta=1e-2 \
    --output_dir=runs/private_sign
python -m analysis.report runs/* --output=report
