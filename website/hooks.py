"""What MkDocs does for the site beyond turning docs/ into pages.

- The README is the first page.
- The notebooks, with their outputs, are pages; the API reference is part of the
  site. `make docs` writes both into build/ before.
- A link that is named by its file has the name of its page.
- Links to files of the repository that are no pages lead to the repository, if
  REPOSITORY_URL says where it is, and are plain text else.
- Anchors are those of GitHub.

It runs in the environment of the site, which has MkDocs and no TensorFlow.
"""

import os
import pathlib
import posixpath
import re

import nbconvert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure import nav as nav_lib
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT = pathlib.Path(__file__).parent.parent
_NOTEBOOKS = _ROOT / 'build' / 'notebooks'
_REFERENCE = _ROOT / 'build' / 'reference'
_LINK = re.compile(r'(!?)\[([^\]]*)\]\(([^)\s]+)\)')
_CODE = re.compile(r'(^```.*?^```$)', re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
  """Makes anchors as GitHub does, and links to the repository."""
  config.mdx_configs.setdefault('toc', {})['slugify'] = _make_anchor
  config.repo_url = os.environ.get('REPOSITORY_URL') or None
  return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
  """Adds what is not in docs/."""
  files.append(_add(config, 'index.md', _ROOT / 'README.md'))
  notebooks = sorted(_NOTEBOOKS.glob('*.ipynb'))
  reference = [path for path in _REFERENCE.rglob('*') if path.is_file()]
  if not notebooks or not reference:
    raise PluginError('build/ has no notebooks or no reference: `make docs`.')
  for path in notebooks:
    name = f'notebooks/{path.stem}'
    text, resources = nbconvert.MarkdownExporter().from_filename(
      str(path),
      resources={'output_files_dir': f'{path.stem}_files'},
    )
    files.append(File.generated(config, f'{name}.md', content=text))
    for image, content in resources['outputs'].items():
      files.append(
        File.generated(config, f'notebooks/{image}', content=content)
      )
  files.append(_add(config, 'site.css', _ROOT / 'website' / 'site.css'))
  for path in reference:
    name = path.relative_to(_REFERENCE).as_posix()
    files.append(_add(config, f'api/{name}', path))
  return files


def on_nav(
  nav: nav_lib.Navigation, config: MkDocsConfig, files: Files
) -> nav_lib.Navigation:
  """Adds the API reference to the last group."""
  del config, files
  nav.items[-1].children.append(nav_lib.Link('API reference', 'api/index.html'))
  return nav


def on_page_markdown(
  markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
  """Leads links out of docs/ to where they belong."""
  path = page.file.src_uri
  folder = {'index.md': '.', 'notebooks': 'notebooks'}.get(
    path if path == 'index.md' else posixpath.dirname(path),
    posixpath.join('docs', posixpath.dirname(path)),
  )

  def lead(match: re.Match) -> str:
    mark, text, target = match.groups()
    file, hash_sign, anchor = target.partition('#')
    if not file or '://' in file or file.startswith('mailto:'):
      return match[0]
    in_repository = posixpath.normpath(posixpath.join(folder, file))
    place = 'index.md' if in_repository == 'README.md' else None
    if in_repository.startswith('docs/'):
      place = in_repository.removeprefix('docs/')
    notebook = re.fullmatch(r'notebooks/(\w+)\.ipynb', in_repository)
    if notebook:
      place = f'notebooks/{notebook[1]}.md'
    if place is None and files.get_file_from_path(in_repository):
      return match[0]  # A file that was made for the site.
    linked = place and files.get_file_from_path(place)
    if linked and posixpath.basename(text) == posixpath.basename(place):
      text = linked.page.title if linked.page else text
    if place is not None:
      here = posixpath.dirname(path)
      link = posixpath.relpath(place, here or '.')
      return f'{mark}[{text}]({link}{hash_sign}{anchor})'
    if not (_ROOT / in_repository).exists():
      raise PluginError(f'{path} links to {target}, which is not there.')
    if config.repo_url is None:
      return text
    return f'[{text}]({config.repo_url}/blob/HEAD/{in_repository})'

  # What is in a block of code is no link.
  parts = _CODE.split(markdown)
  return ''.join(
    part if part.startswith('```') else _LINK.sub(lead, part) for part in parts
  )


def _add(config: MkDocsConfig, name: str, path: pathlib.Path) -> File:
  """Returns a file of the site that is kept elsewhere."""
  return File.generated(config, name, abs_src_path=str(path))


def _make_anchor(heading: str, separator: str) -> str:
  """Returns the anchor of a heading."""
  return re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', separator)
