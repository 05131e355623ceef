export { Idiomorph } from 'idiomorph';
