import { expect, test } from 'vitest'
import { mkfsArgs } from './ext4-image.ts'
import { mountPointsBelow } from './image-mounts.ts'

const line = (point: string) => `42 27 7:0 / ${point} rw,nosuid,nodev,noatime - ext4 /dev/loop0 rw`

test('mounts below a folder are found, the last first, and no others', () => {
  const mountinfo = [
    '27 1 254:0 / / rw - ext4 /dev/vda rw',
    line('/data/sandboxes/a/disk'),
    line('/data/sandboxes-of-another/b/disk'),
    line('/data/sandboxes'),
    line('/data/sandboxes/c/disk'),
    '',
  ].join('\n')
  expect(mountPointsBelow(mountinfo, '/data/sandboxes')).toEqual([
    '/data/sandboxes/c/disk',
    '/data/sandboxes/a/disk',
  ])
  expect(mountPointsBelow('', '/data')).toEqual([])
})

test('blanks, backslashes and other letters in a path are read as they are', () => {
  const mountinfo = line('/my\\040data\\134\\011/sandböxes/a/disk')
  expect(mountPointsBelow(mountinfo, '/my data\\\t/sandböxes')).toEqual(['/my data\\\t/sandböxes/a/disk'])
})

test('an image has as many inodes as its size allows, and keeps nothing back for root', () => {
  const args = mkfsArgs('/data/disk.img', 100)
  expect(args.at(-1)).toBe('/data/disk.img')
  expect(args[args.indexOf('-N') + 1]).toBe('6400')
  expect(args[args.indexOf('-m') + 1]).toBe('0')
  expect(args[args.indexOf('-O') + 1]).toContain('^has_journal')
})
