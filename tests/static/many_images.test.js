import assert from 'node:assert/strict';
import test from 'node:test';

import { sortFiles } from '../../static/js/many_images.js';

const names = (files) => files.map(({ name }) => name);

test('dropped files are sorted into images, an archive and a list', () => {
  const given = ['a.png', '.DS_Store', 'b.JPG', 'photos.tar.gz', 'list.txt', 'c.webp'].map((name) => ({ name }));
  const { files, archive, list } = sortFiles(given, '.tar.gz,.zip', '.txt,.csv');
  assert.deepEqual(names(files), ['a.png', 'b.JPG', 'c.webp']);
  assert.deepEqual([archive.name, list.name], ['photos.tar.gz', 'list.txt']);
  assert.deepEqual(sortFiles([], '.zip', '.txt'), { files: [], archive: undefined, list: undefined });
});
