# Vision transformer: for fine-tuning on photos; from scratch, it needs millions of images. ViT-B/16, from
# KerasHub.
#
# Designed for 224x224 color, random crops from 256x256; images of other sizes are resized. 86,567,656 parameters
# for 1000 classes.
# Recommended settings: AdamW with weight decay 0.1, learning rate 0.0005 for batches of 64 falling along a cosine
# after 10% of warm-up, 300 epochs, no mean subtraction (the network scales its input), crop 224.
#
# paper: Dosovitskiy et al., 2021, “An Image is Worth 16x16 Words”.
# settings: solver_type=ADAMW weight_decay=0.1 learning_rate=0.0005 lr_policy=cosine lr_warmup=10
# settings: batch_size=64 train_epochs=300 use_mean=none crop_size=224 aug_flip=fliplr
# few images: batch_size=32
# kinds: image-classification image-regression image-multilabel
# pretrained: vit
# requires: keras_hub digits[vit]

import keras
import keras_hub

# The trained position embeddings are for this size.
SIDE = 224
# ViT-S/16, with a quarter of the parameters, is 12, 6 and 384; there are no trained weights for it.
LAYERS, HEADS, WIDTH = 12, 12, 768


class UserModel(Tower):
    @model_property
    def inference(self):
        net = keras_hub.models.ViTBackbone(
            image_shape=(SIDE, SIDE, 3),
            patch_size=16,
            num_layers=LAYERS,
            num_heads=HEADS,
            hidden_dim=WIDTH,
            mlp_dim=4 * WIDTH,
        )
        tokens = net(self.prepared(self.x), training=self.is_training)
        return digits.scale_output(keras.layers.Dense(self.nclasses, name="predictions")(tokens[:, 0]))

    def prepared(self, x):
        """Resize to the size of the position embeddings, and scale to -1 to 1, as for the trained weights."""
        height, width, channels = self.input_shape
        if (height, width) != (SIDE, SIDE):
            x = keras.layers.Resizing(SIDE, SIDE, name="resized")(x)
        if channels == 1:
            x = keras.layers.Concatenate(name="color")([x, x, x])
        return x / 127.5 - 1

    @model_property
    def loss(self):
        if self.target.classes:
            accuracy = digits.classification_accuracy(self.inference, self.y)
            self.summaries.append(tf.summary.scalar("accuracy", accuracy))
        return digits.loss(self.inference, self.y)
