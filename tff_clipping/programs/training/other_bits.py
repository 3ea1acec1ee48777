"""Why a round that is run again may give other bits, in a few words."""

from collections.abc import Collection

from tff_clipping.runtime import environment

_MACHINE = 'the machine'
# What `environment.describe` gives by its name, and the state of the round.
_NAMES = ('CPUs', 'GPUs', 'settings', 'computation', 'state')
# Of these, the value says nothing to a reader.
_WHAT_DIFFERS = {
  'settings': (
    'an environment variable of TensorFlow or of its libraries, or the build '
    'of TensorFlow, is another one'
  ),
  'state': (
    'the state before it is another one, as after a round that was drawn anew'
  ),
}


def explain(
  there: str | None,
  here: str,
  computed: Collection[str | None],
  *,
  data_sets_repeat: bool,
) -> str:
  """Returns what differs, and the likely cause.

  Args:
    there: Where the round was charged: what `environment.describe` returned,
      and the digest of the state; `None` if that is not known.
    here: The same of the round that was run again; another text.
    computed: What `environment.recording` gave of it.
    data_sets_repeat: As for `environment.describe`.

  Returns:
    A part of a sentence.
  """
  if there is None:
    return 'the ledger does not say where it was computed'
  before, now = _items(there), _items(here)
  found = []
  for name in dict.fromkeys([*before, *now]):
    if before.get(name) == now.get(name):
      continue
    if name == 'computation':
      found.append(
        'a GPU computes it'
        if now.get('GPUs', '0') != '0'
        else _explain_computation(computed, data_sets_repeat)
      )
    else:
      found.append(
        _WHAT_DIFFERS.get(name)
        or f'{name} was {before.get(name)} and is {now.get(name)}'
      )
  return '; '.join(found)


def _explain_computation(
  computed: Collection[str | None], data_sets_repeat: bool
) -> str:
  """Returns why a computation is not known to be the one before."""
  if not computed:
    return 'it was computed in no context of `tff_clipping.runtime`'
  if None in computed:
    return (
      'it draws random numbers, in the model, or as its noise, which has no '
      '`noise_key`'
    )
  if environment.DATA_SETS in computed and not data_sets_repeat:
    return (
      'its clients give data sets, which may be shuffled anew (those of a '
      'client store are not)'
    )
  return 'the process, or the context that computes it, is another one'


def _items(text: str) -> dict[str, str]:
  """Returns the parts of an environment by their names."""
  names = {*_NAMES, *environment.versions()}
  items: dict[str, str] = {}
  for part in text.split(', '):
    name, _, value = part.rpartition(' ')
    if name in names:
      items[name] = value
    else:  # The name of a processor may have a comma.
      items[_MACHINE] = ', '.join([*filter(None, [items.get(_MACHINE)]), part])
  return items
